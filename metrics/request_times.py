"""Quantiles of recent request times by API, as in Kafka's request metrics.

Histograms count from the start of the broker. The requests of the last minutes are the difference
between two counts, so each scrape leaves its counts for the scrapes of the next five minutes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from metrics.histogram import Histogram, quantile

WINDOW_SECONDS = 300.0
SAMPLE_SECONDS = 15.0
"""A scrape that follows sooner than this leaves no counts."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Kafka's percentiles, as the rules of the JMX exporter name them."""

Counts = Mapping[str, tuple[int, ...]]


class RequestTimes:
    """Keeps the counts that the scrapes of the last five minutes left. One thread at a time."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counts]] = deque([(float("-inf"), {})])

    def quantiles(
        self, requests: Mapping[str, Histogram], now_s: float
    ) -> Iterator[tuple[str, str, float]]:
        """Yields API, quantile and milliseconds for each API with requests in the window.

        Args:
            now_s: the moment of this scrape, on any clock that only goes forward.
        """
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - WINDOW_SECONDS:
            self._samples.popleft()
        _, before = self._samples[0]
        counts = {api: tuple(each.counts) for api, each in sorted(requests.items())}
        if now_s - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now_s, counts))
        for api, now in counts.items():
            recent = [a - b for a, b in zip(now, before.get(api, (0,) * len(now)), strict=True)]
            if any(recent):
                for share in QUANTILES:
                    seconds = quantile(requests[api].bounds, recent, float(share))
                    yield api, share, seconds * 1000

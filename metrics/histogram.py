"""A histogram that costs one binary search and two additions per observation."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
"""Bounds for requests and syncs, from a tenth of a millisecond up."""


def _subdivided(bounds: tuple[float, ...], ratio: float) -> tuple[float, ...]:
    """Returns the bounds with more bounds in between, so that no step exceeds `ratio`."""
    finer = [bounds[0]]
    for lower, upper in pairwise(bounds):
        steps = math.ceil(math.log(upper / lower) / math.log(ratio) - 1e-9)
        finer += [lower * (upper / lower) ** (step / steps) for step in range(1, steps)]
        finer.append(upper)
    return tuple(finer)


REQUEST_SECONDS = _subdivided((*SECONDS, 60), 1.25)
"""Bounds for requests: a quantile has an error of at most a quarter; a scrape shows only `SECONDS`."""

FINE_SECONDS = tuple(0.00002 * 1.15**power for power in range(96))
"""Bounds for quantiles with an error of at most a seventh: 20 us to 12 s."""

LONG_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200)
"""Bounds for cleaning passes."""


class Histogram:
    """Counts observations by upper bound. One thread writes; another may read an inconsistent state."""

    __slots__ = ("_shown", "bounds", "counts", "total")

    def __init__(
        self, bounds: tuple[float, ...] = SECONDS, *, shown: tuple[float, ...] | None = None
    ) -> None:
        """`shown` is the subset of the bounds that a scrape shows; by default all."""
        self.bounds = bounds
        self._shown = frozenset((*(bounds if shown is None else shown), float("inf")))
        # One more than bounds: the last counts the observations above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns Prometheus' buckets: the observations up to each shown bound, `+Inf` last."""
        buckets: list[tuple[str, float]] = []
        count = 0
        for bound, number in zip((*self.bounds, float("inf")), self.counts, strict=True):
            count += number
            if bound in self._shown:
                buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), count))
        return buckets


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Returns the least bound that at least `share` of the observations do not exceed; 0 without any.

    Args:
        counts: by upper bound, as `Histogram.counts`, or the difference of two of these.
    """
    wanted = share * sum(counts)
    seen = 0
    for bound, count in zip((*bounds, bounds[-1]), counts, strict=True):
        seen += count
        if count and seen >= wanted:
            return bound
    return 0.0

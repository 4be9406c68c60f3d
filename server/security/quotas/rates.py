"""Rates over sliding windows, and token buckets: how much of a quota a client has used.

    | sample | sample | ... | sample (current) |        one sample a window; the rate is their sum over
    oldest                               now            the time since the oldest began

The formulas are Kafka's to the letter, because clients see the throttle times. Time is passed in.

Source: Apache Kafka, SampledStat.java, Rate.java, TokenBucket.java, QuotaUtils.java.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

START, LAST, SUM, FIELDS = range(4)
"""Positions within a sample: its start and last event in ms, and the sum of what was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How a rate is measured: the number of samples, and how long each lasts."""

    count: int
    """The current window and those before it (`quota.window.num`)."""
    seconds: int
    """`quota.window.size.seconds`."""

    @property
    def size_ms(self) -> int:
        return self.seconds * 1000


class Rate:
    """The amount per second that was recorded within the last windows."""

    __slots__ = ("_current", "_samples")

    def __init__(self) -> None:
        # State: the samples as a ring, three numbers each; one more than windows, because the oldest
        # may begin before the windows and end within them.
        self._samples = array("d")
        self._current = 0

    def copy(self) -> Rate:
        """Returns a copy that another thread may measure."""
        copied = Rate()
        copied._samples, copied._current = self._samples[:], self._current
        return copied

    def record(self, amount: float, windows: Windows, now_ms: float) -> None:
        """Add an amount; a negative one takes back what was recorded."""
        samples = self._samples
        if not samples:
            samples.extend((now_ms, now_ms, 0.0))
        elif now_ms - samples[self._current + START] >= windows.size_ms:
            self._advance(windows, now_ms)
        samples[self._current + SUM] += amount
        samples[self._current + LAST] = now_ms

    def per_second(self, windows: Windows, now_ms: float) -> float:
        """Returns the rate now."""
        self._purge(windows, now_ms)
        return sum(self._samples[SUM::FIELDS]) / (self.span_ms(windows, now_ms) / 1000)

    def span_ms(self, windows: Windows, now_ms: float) -> float:
        """Returns the time over which the rate is measured: at least all windows except one, so that
        the first request of a client does not exceed its quota by itself."""
        self._purge(windows, now_ms)
        span = now_ms - min(self._samples[START::FIELDS], default=now_ms)
        missing = windows.count - 1 - int(span / windows.size_ms)
        return max(span + max(missing, 0) * windows.size_ms, 1)

    def _advance(self, windows: Windows, now_ms: float) -> None:
        """Begin the next sample, in place of the oldest."""
        self._current = (self._current + FIELDS) % ((windows.count + 1) * FIELDS)
        if self._current == len(self._samples):
            self._samples.extend((now_ms, now_ms, 0.0))
        else:
            self._reset(self._current, now_ms)

    def _purge(self, windows: Windows, now_ms: float) -> None:
        """Reset the samples whose last event is older than all windows."""
        limit_ms = now_ms - windows.count * windows.size_ms
        samples = self._samples
        for place in range(0, len(samples), FIELDS):
            if samples[place + LAST] <= limit_ms:
                self._reset(place, now_ms)

    def _reset(self, place: int, now_ms: float) -> None:
        samples = self._samples
        samples[place + START] = samples[place + LAST] = now_ms
        samples[place + SUM] = 0.0


class TokenBucket:
    """Tokens that refill at the rate of a quota, up to what all windows allow; it may be overdrawn."""

    __slots__ = ("_last_ms", "_tokens", "bound")

    def __init__(self) -> None:
        self.bound = math.inf
        """The quota at the last use."""
        # State: the tokens at `_last_ms`; a new bucket is full.
        self._tokens = math.inf
        self._last_ms = 0.0

    def copy(self) -> TokenBucket:
        """Returns a copy that another thread may measure."""
        copied = TokenBucket()
        copied.bound, copied._tokens, copied._last_ms = self.bound, self._tokens, self._last_ms
        return copied

    def take(self, amount: float, bound: float, windows: Windows, now_ms: float) -> None:
        """Take tokens, even if fewer are left."""
        self._tokens = self.tokens(bound, windows, now_ms) - amount

    def tokens(self, bound: float, windows: Windows, now_ms: float) -> float:
        """Returns how many tokens are left; below 0 if the quota is exhausted.

        Args:
            bound: the quota, in tokens a second.
        """
        self.bound = bound
        burst = windows.count * windows.seconds * bound
        refilled = self._tokens + bound * (now_ms - self._last_ms) / 1000
        self._tokens, self._last_ms = min(burst, refilled), now_ms
        return self._tokens


def throttle_ms(rate: float, bound: float, span_ms: float) -> int:
    """Returns how long a client must pause until its rate is within the bound; 0 if it already is."""
    return _rounded((rate - bound) / bound * span_ms) if rate > bound else 0


def refill_ms(tokens: float, bound: float) -> int:
    """Returns how long an overdrawn bucket takes to hold no less than 0 tokens."""
    return _rounded(-tokens / bound * 1000) if tokens < 0 else 0


def _rounded(value: float) -> int:
    """Returns Java's Math.round, in the range of an int32."""
    return min(math.floor(value + 0.5), (1 << 31) - 1)

"""The broker's clock, and a clock that does not step; tests use fake ones."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the wall time for records and horizons, and a monotonic time to measure durations."""

    def now_ms(self) -> int:
        """Returns the wall time in ms since 1970; it may step in either direction."""

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary moment; never goes back."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SteadyClock:
    """A wall clock that reads another clock once and does not step when that clock is set."""

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - round(clock.monotonic() * 1000)

    def now_ms(self) -> int:
        return self._offset_ms + round(self._clock.monotonic() * 1000)

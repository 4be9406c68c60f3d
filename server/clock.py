"""The broker's one clock, and one on it that does not step; tests bring their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is: for records and horizons, and for measuring how long things take."""

    def now_ms(self) -> int:
        """Wall time in ms since 1970; it may step, in either direction."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SteadyClock:
    """ms since 1970 as a clock told them once, and from then on it does not step when it is set."""

    __slots__ = ("_clock", "_step_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step_ms = clock.now_ms() - round(clock.monotonic() * 1000)

    def now_ms(self) -> int:
        return self._step_ms + round(self._clock.monotonic() * 1000)

"""Measures how long produces take, and sets how fast the cleaner may go.

`cleaner/pacing/latency_guard.py` decides on the rate; this module measures, and applies the decision. A
window closes when it has seen enough produces for a 99th percentile, at the latest after a second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from cleaner.pacing.latency_guard import GuardState, LatencyWindow, after_window
from metrics.cleaner_probe import CleanerCounts
from metrics.histogram import quantile
from metrics.server_probe import ServerProbe
from server.runtime.tasks import every, spawn
from storage.threads import loop_thread

TICK_SECONDS = 0.1
WINDOW_PRODUCES = 200
WINDOW_SECONDS_MAX = 1.0


@loop_thread
class LatencyWatch:
    """Applies the latency guard to the cleaner; `stop` ends it."""

    __slots__ = (
        "_bytes_before", "_cleaner", "_counts_before", "_is_enabled", "_is_late", "_opened_at",
        "_produced", "_set_rate", "_state", "_task",
    )  # fmt: skip

    def __init__(
        self,
        produced: ServerProbe,
        cleaner: CleanerCounts,
        *,
        set_rate: Callable[[float], None],
        is_enabled: bool,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            produced: holds the histogram of produce times.
            cleaner: counts the bytes that the cleaner reads and writes.
            set_rate: called with the rate that the guard allows, in bytes per second.
            is_late: returns whether the cleaner's backlog is past its deadline.
        """
        # Constant after construction
        self._produced = produced
        self._cleaner = cleaner
        self._set_rate = set_rate
        self._is_late = is_late
        # State
        self._state = GuardState()
        self._is_enabled = is_enabled
        self._open_window()
        self._task = spawn(every(TICK_SECONDS, self._tick, "latency watch"), "latency watch")

    @property
    def is_enabled(self) -> bool:
        """Whether the guard limits the cleaner at all."""
        return self._is_enabled

    @property
    def state(self) -> GuardState:
        """The last decision, and the quiet p99 that it is based on."""
        return self._state

    def enable(self, is_enabled: bool) -> None:
        """Turn the guard on, or off: then the cleaner goes as fast as its budgets allow."""
        self._is_enabled = is_enabled
        if not is_enabled:
            self._decide(replace(self._state, rate=math.inf))

    async def stop(self) -> None:
        """Stop measuring; the rate stays as it is."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _tick(self) -> None:
        window = self._window()
        # Without produces the cleaner goes at full speed; the first produce must end that at once.
        is_first = window.produces > 0 and math.isinf(self._state.rate)
        is_full = window.produces >= WINDOW_PRODUCES or window.seconds >= WINDOW_SECONDS_MAX
        if is_first or is_full:
            self._open_window()
            if self._is_enabled:
                self._decide(after_window(self._state, window, is_late=self._is_late()))

    def _decide(self, state: GuardState) -> None:
        if state.rate != self._state.rate:
            self._set_rate(state.rate)
        self._state = state
        self._cleaner.guarded(state.rate, state.quiet_p99)

    def _open_window(self) -> None:
        self._opened_at = asyncio.get_running_loop().time()
        self._counts_before = list(self._produced.produce_seconds.counts)
        self._bytes_before = self._cleaner_bytes()

    def _window(self) -> LatencyWindow:
        histogram = self._produced.produce_seconds
        counts = [
            now - before for now, before in zip(histogram.counts, self._counts_before, strict=True)
        ]
        return LatencyWindow(
            seconds=asyncio.get_running_loop().time() - self._opened_at,
            produces=sum(counts),
            p99_seconds=quantile(histogram.bounds, counts, 0.99),
            cleaner_bytes=self._cleaner_bytes() - self._bytes_before,
        )

    def _cleaner_bytes(self) -> int:
        return self._cleaner.bytes_read_total + self._cleaner.bytes_written_total

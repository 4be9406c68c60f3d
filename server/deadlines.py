"""When groups, or transactions, want to be told of the time: one heap and one timer for all of them.

A deadline may be earlier than anything that is due; whose it is then says when to look again. So a
heartbeat, which makes a deadline later, costs nothing here.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from server.tasks import call_later, guarded

MS = 1_000


class Deadlines:
    """The next deadline of each id, on the event loop.

    Args:
        now_ms: a clock that does not step.
        on_due: is called with the id once its deadline is over; it may set another.
    """

    __slots__ = ("_by_id", "_heap", "_now_ms", "_on_due", "_timer", "_timer_ms")

    def __init__(self, now_ms: Callable[[], int], on_due: Callable[[str], None]) -> None:
        self._now_ms = now_ms
        self._on_due = on_due
        self._by_id: dict[str, int] = {}
        # Also holds what was replaced by an earlier deadline; that is passed over.
        self._heap: list[tuple[int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def set(self, whose: str, due_ms: int | None) -> None:
        """Tell of that time, if an earlier one is not told of anyway."""
        if due_ms is None or self._by_id.get(whose, due_ms + 1) <= due_ms:
            return
        self._by_id[whose] = due_ms
        heapq.heappush(self._heap, (due_ms, whose))
        self._arm()

    def stop(self) -> None:
        """Tell nobody of anything any more."""
        self._by_id.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        """Let the timer end at the earliest deadline."""
        due_ms = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if due_ms == self._timer_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(due_ms - self._now_ms(), 0) / MS
            self._timer_ms = due_ms
            self._timer = call_later(delay_s, "deadlines", self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, whose = heapq.heappop(self._heap)
            if self._by_id.get(whose) == due_ms:
                del self._by_id[whose]
                due.append(whose)
        for whose in due:
            with guarded("deadline"):
                self._on_due(whose)
        self._arm()

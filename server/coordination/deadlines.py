"""Deadlines of groups or transactions: one heap and one timer for all of them.

The owners are `groups/coordinator.py` (sessions and rebalances) and `transactions/coordinator.py`
(timeouts of transactions). When a deadline passes, it may turn out that nothing is due yet; the owner
then sets a new one. So a heartbeat, which only delays what is due, costs nothing here.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from server.runtime.tasks import call_later, guarded
from storage.threads import loop_thread

MS = 1_000


@loop_thread
class Deadlines:
    """The next deadline of each id.

    Args:
        now_ms: a monotonic clock.
        on_due: called with the id once its deadline has passed; it may set a new one.
    """

    __slots__ = ("_by_id", "_heap", "_now_ms", "_on_due", "_timer", "_timer_ms")

    def __init__(self, now_ms: Callable[[], int], on_due: Callable[[str], None]) -> None:
        self._now_ms = now_ms
        self._on_due = on_due
        self._by_id: dict[str, int] = {}
        # May also contain deadlines replaced by earlier ones; they are skipped.
        self._heap: list[tuple[int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def set(self, coordinated_id: str, due_ms: int | None) -> None:
        """Set the deadline of an id, unless it has an earlier one."""
        if due_ms is None or self._by_id.get(coordinated_id, due_ms + 1) <= due_ms:
            return
        self._by_id[coordinated_id] = due_ms
        heapq.heappush(self._heap, (due_ms, coordinated_id))
        self._arm()

    def stop(self) -> None:
        """Remove all deadlines."""
        self._by_id.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the earliest deadline."""
        due_ms = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if due_ms == self._timer_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(due_ms - self._now_ms(), 0) / MS
            self._timer_ms = due_ms
            self._timer = call_later(delay_s, "deadlines", self._on_timer)
        self._check_timer_runs_while_deadlines_wait()

    def _check_timer_runs_while_deadlines_wait(self) -> None:
        assert (self._timer is not None) == bool(self._heap)
        assert len(self._by_id) <= len(self._heap)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, coordinated_id = heapq.heappop(self._heap)
            if self._by_id.get(coordinated_id) == due_ms:
                del self._by_id[coordinated_id]
                due.append(coordinated_id)
        for coordinated_id in due:
            with guarded("deadline"):
                self._on_due(coordinated_id)
        self._arm()

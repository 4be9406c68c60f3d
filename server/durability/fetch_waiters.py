"""Parks fetches that wait for more data, and wakes them when one of their logs changes.

There is no polling: when a log's high watermark moves, or the log goes away, exactly the fetches that
watch it wake. A timer ends the wait of the others. (Kafka's purgatory, DelayedFetch.scala.)

The work in one turn of the loop is bounded, no matter how many fetches watch one log and how many logs
one fetch watches: `WAKES_PER_TURN` fetches wake in a turn, and a fetch that watches many logs is
removed from them over several turns.
"""

from __future__ import annotations

import asyncio
from collections import deque

from server.runtime.tasks import call_later, call_soon
from storage.log.log import PartitionLog
from storage.threads import loop_thread

WAKES_PER_TURN = 64
"""How many fetches wake in one turn: each of them reads at least one partition in that turn."""

WAKES_PER_LOG = 8
"""How many fetches of one log wake before those of the next log: a log with few fetches need not wait
for a log with many."""

LOGS_PER_TURN = 2_000
"""Fetches are removed from at most this many logs in one turn, which takes about a millisecond."""


@loop_thread
class ParkedFetch:
    """One waiting fetch."""

    __slots__ = ("_future", "_waiters", "_woken", "logs")

    def __init__(self, waiters: FetchWaiters) -> None:
        self._waiters = waiters
        self._future: asyncio.Future[None] | None = None
        self._woken: dict[PartitionLog, None] = {}
        self.logs: dict[PartitionLog, None] = {}
        """The logs that it watches."""

    def watch(self, log: PartitionLog) -> None:
        """Watch `log` too: every later change of it wakes this fetch."""
        self.logs[log] = None
        self._waiters.watch(self, log)

    def unwatch(self, log: PartitionLog) -> None:
        """No longer watch `log`."""
        self.logs.pop(log, None)
        self._woken.pop(log, None)
        self._waiters.unwatch(self, log)

    @property
    def is_woken(self) -> bool:
        """Whether a log has changed since the last `take_woken`."""
        return bool(self._woken)

    def take_woken(self) -> list[PartitionLog]:
        """Returns the logs that have changed since the last call, each once."""
        woken = list(self._woken)
        self._woken.clear()
        return woken

    async def wait(self, timeout_s: float) -> None:
        """Wait until a log changes, `cancel` is called or the timeout passes."""
        if self._woken or timeout_s <= 0:
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = call_later(timeout_s, "fetch waiter", self.cancel)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None

    def wake(self, log: PartitionLog) -> None:
        """Note that `log` has changed, and end the wait."""
        self._woken[log] = None
        self.cancel()

    def suspend(self) -> None:
        """Keep watching though no request waits: the next one of the same session will."""
        self._waiters.suspend(self)

    def resume(self) -> None:
        """Wait again for the logs that it watches. `take_woken` returns what has changed meanwhile."""
        self._waiters.resume(self)

    def cancel(self) -> None:
        """End the wait early."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        """Stop watching all logs. Call it once for every `park`."""
        self._waiters.leave(self)


@loop_thread
class FetchWaiters:
    """Tracks which parked fetches watch which log."""

    __slots__ = ("_by_log", "_changed", "_changed_whole", "_leaving", "_parked", "_wakes_left")

    def __init__(self) -> None:
        # State: no empty dicts.
        self._parked: set[ParkedFetch] = set()
        self._by_log: dict[PartitionLog, dict[ParkedFetch, None]] = {}
        # Logs that have changed, with those of their fetches that are still to wake; None for all.
        self._changed: deque[tuple[PartitionLog, list[ParkedFetch] | None]] = deque()
        # The logs that are in `_changed` with None.
        self._changed_whole: set[PartitionLog] = set()
        # How many fetches may still wake in this turn. Less than WAKES_PER_TURN exactly while a
        # callback for the next turn is scheduled.
        self._wakes_left = WAKES_PER_TURN
        # Fetches that are not yet removed from all their logs. A callback is scheduled exactly while
        # this is not empty.
        self._leaving: deque[ParkedFetch] = deque()

    def park(self) -> ParkedFetch:
        """Returns a new parked fetch; call its `watch` for each log to wait for."""
        parked = ParkedFetch(self)
        self._parked.add(parked)
        return parked

    def watch(self, parked: ParkedFetch, log: PartitionLog) -> None:
        """Wake this fetch whenever `log` changes."""
        waiting = self._by_log.get(log)
        if waiting is None:
            self._by_log[log] = {parked: None}
        else:
            waiting[parked] = None

    def is_watched(self, log: PartitionLog) -> bool:
        """Returns whether a fetch waits for a change of `log`. Suspended ones do not count."""
        watching = self._by_log.get(log)
        return watching is not None and not self._parked.isdisjoint(watching)

    def unwatch(self, parked: ParkedFetch, log: PartitionLog) -> None:
        """No longer wake this fetch when `log` changes."""
        watching = self._by_log.get(log)
        if watching is not None:
            watching.pop(parked, None)
            if not watching:
                del self._by_log[log]

    def wake(self, log: PartitionLog) -> None:
        """Wake the fetches that watch `log`: it has more to read, or is gone."""
        if log in self._by_log and log not in self._changed_whole:
            self._changed_whole.add(log)
            self._changed.append((log, None))
            self._wake_some()

    def suspend(self, parked: ParkedFetch) -> None:
        """No longer count a fetch as parked; it still watches its logs."""
        self._parked.discard(parked)

    def resume(self, parked: ParkedFetch) -> None:
        """Count a fetch as parked again."""
        self._parked.add(parked)

    def leave(self, parked: ParkedFetch) -> None:
        """Remove a fetch from all logs that it watches."""
        self._parked.discard(parked)
        self._leaving.append(parked)
        if len(self._leaving) == 1:
            self._remove_some()

    @property
    def parked_count(self) -> int:
        """The number of parked fetches."""
        return len(self._parked)

    def _wake_some(self) -> None:
        """Wake as many fetches as this turn allows, a few of each log in turn."""
        left_before = self._wakes_left
        while self._changed and self._wakes_left > 0:
            log, waiting = self._changed.popleft()
            if waiting is None:
                self._changed_whole.discard(log)
                waiting = list(self._by_log.get(log, ()))
            portion = waiting[-WAKES_PER_LOG:]
            del waiting[-WAKES_PER_LOG:]
            for parked in portion:
                parked.wake(log)
            self._wakes_left -= len(portion)
            if waiting:
                self._changed.append((log, waiting))
        if self._wakes_left < left_before == WAKES_PER_TURN:
            call_soon("fetch wake-ups", self._begin_turn)
        self._check_rest_waits_for_a_turn()

    def _check_rest_waits_for_a_turn(self) -> None:
        assert not self._changed or self._wakes_left <= 0
        assert len(self._changed_whole) <= len(self._changed)

    def _begin_turn(self) -> None:
        self._wakes_left = WAKES_PER_TURN
        self._wake_some()

    def _remove_some(self) -> None:
        """Remove leaving fetches from as many logs as this turn allows; schedule the rest."""
        logs_left = LOGS_PER_TURN
        while self._leaving:
            parked = self._leaving[0]
            while parked.logs:
                if logs_left == 0:
                    call_soon("fetch departures", self._remove_some)
                    return
                logs_left -= 1
                self.unwatch(parked, parked.logs.popitem()[0])
            self._leaving.popleft()

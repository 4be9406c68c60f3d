"""Fetches that wait for more data: each names its logs, each log wakes its fetches.

There is no polling: a log's high watermark that moves, or the log's end, wakes exactly the fetches
that named it; a timer ends what nobody woke. (Kafka's purgatory, DelayedFetch.scala.)

What one turn of the loop does here is bounded, however many fetches wait for one log and however many
logs one fetch names: the fetches of a log are woken `WAKES_A_TURN` at a time, and a fetch that named
many logs leaves them in the turns to come.
"""

from __future__ import annotations

import asyncio
from collections import deque

from server.tasks import call_later, call_soon
from storage.log import PartitionLog

WAKES_A_TURN = 64
"""Each fetch that wakes reads at least one partition, in the same turn as the others."""

WAKES_A_LOG = 8
"""So many of one log are woken before the next log's, so that few need not wait for many."""

LOGS_A_TURN = 2_000
"""To leave so many logs takes about a millisecond."""


class ParkedFetch:
    """One waiting fetch."""

    __slots__ = ("_future", "_waiters", "_woken", "logs")

    def __init__(self, waiters: FetchWaiters) -> None:
        self._waiters = waiters
        self._future: asyncio.Future[None] | None = None
        self._woken: dict[PartitionLog, None] = {}
        self.logs: list[PartitionLog] = []
        """What it waits for."""

    def watch(self, log: PartitionLog) -> None:
        """Wait for `log`, too: from now on no change of it is missed."""
        self.logs.append(log)
        self._waiters.watch(self, log)

    @property
    def is_woken(self) -> bool:
        """Whether a log has changed since the last `take_woken`."""
        return bool(self._woken)

    def take_woken(self) -> list[PartitionLog]:
        """The logs that changed since this was last called, each once."""
        woken = list(self._woken)
        self._woken.clear()
        return woken

    async def wait(self, timeout_s: float) -> None:
        """Wait until a log wakes it, `cancel` is called or the time is over."""
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
        """Say that `log` has changed."""
        self._woken[log] = None
        self.cancel()

    def cancel(self) -> None:
        """End the wait early."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        """Be woken no more. Must follow every `park`."""
        self._waiters.leave(self)


class FetchWaiters:
    """Which parked fetches wait for which log. Used from the loop's thread only."""

    __slots__ = ("_by_log", "_changed", "_leaving", "_parked", "_room", "_untold")

    def __init__(self) -> None:
        # State: no empty dicts.
        self._parked: set[ParkedFetch] = set()
        self._by_log: dict[PartitionLog, dict[ParkedFetch, None]] = {}
        # Logs that have changed, with those of their fetches that are to be woken; None for all.
        self._changed: deque[tuple[PartitionLog, list[ParkedFetch] | None]] = deque()
        # The logs in it that stand there with None.
        self._untold: set[PartitionLog] = set()
        # How many fetches may still be woken in this turn. Less than all of them exactly while a
        # callback is due that begins the next.
        self._room = WAKES_A_TURN
        # What has left, but not all of its logs. A callback is due exactly while it is not empty.
        self._leaving: deque[ParkedFetch] = deque()

    def park(self) -> ParkedFetch:
        """Begin a wait; `watch` says for what."""
        parked = ParkedFetch(self)
        self._parked.add(parked)
        return parked

    def watch(self, parked: ParkedFetch, log: PartitionLog) -> None:
        """Have `log` wake a fetch."""
        self._by_log.setdefault(log, {})[parked] = None

    def wake(self, log: PartitionLog) -> None:
        """Wake the fetches that wait for `log`: it has more to read, or is gone."""
        if log in self._by_log and log not in self._untold:
            self._untold.add(log)
            self._changed.append((log, None))
            self._wake_some()

    def leave(self, parked: ParkedFetch) -> None:
        """Have no log wake a fetch any more."""
        self._parked.discard(parked)
        self._leaving.append(parked)
        if len(self._leaving) == 1:
            self._forget_some()

    @property
    def parked_count(self) -> int:
        """How many fetches wait."""
        return len(self._parked)

    def _wake_some(self) -> None:
        """Wake as many as this turn has room for, the logs by turns."""
        had_room = self._room
        while self._changed and self._room > 0:
            log, waiting = self._changed.popleft()
            if waiting is None:
                self._untold.discard(log)
                waiting = list(self._by_log.get(log, ()))
            portion = waiting[-WAKES_A_LOG:]
            del waiting[-WAKES_A_LOG:]
            for parked in portion:
                parked.wake(log)
            self._room -= len(portion)
            if waiting:
                self._changed.append((log, waiting))
        if self._room < had_room == WAKES_A_TURN:
            call_soon("fetch wake-ups", self._begin_turn)

    def _begin_turn(self) -> None:
        self._room = WAKES_A_TURN
        self._wake_some()

    def _forget_some(self) -> None:
        """Take fetches that have left out of some logs, the rest of them in the next turns."""
        room = LOGS_A_TURN
        while self._leaving:
            parked = self._leaving[0]
            while parked.logs:
                if room == 0:
                    call_soon("fetch departures", self._forget_some)
                    return
                room -= 1
                self._forget(parked, parked.logs.pop())
            self._leaving.popleft()

    def _forget(self, parked: ParkedFetch, log: PartitionLog) -> None:
        waiting = self._by_log.get(log)
        if waiting is not None:
            waiting.pop(parked, None)
            if not waiting:
                del self._by_log[log]

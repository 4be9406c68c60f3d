"""Fetches that wait for more data: each names its logs, each log wakes its fetches.

There is no polling: a log's high watermark that moves, or the log's end, wakes exactly the fetches
that named it; a timer ends what nobody woke. (Kafka's purgatory, DelayedFetch.scala.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from storage.log import PartitionLog


class ParkedFetch:
    """One waiting fetch. `woken` collects the logs that changed since it last looked."""

    __slots__ = ("_future", "_logs", "_waiters", "woken")

    def __init__(self, waiters: FetchWaiters, logs: tuple[PartitionLog, ...]) -> None:
        self._waiters = waiters
        self._logs = logs
        self._future: asyncio.Future[None] | None = None
        self.woken: set[PartitionLog] = set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until a log wakes it, `cancel` is called or the time is over."""
        if self.woken or timeout_s <= 0:
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_later(timeout_s, self.cancel)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None

    def wake(self, log: PartitionLog) -> None:
        """Say that `log` has changed."""
        self.woken.add(log)
        self.cancel()

    def cancel(self) -> None:
        """End the wait early."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        """Be woken no more. Must follow every `park`."""
        self._waiters.forget(self, self._logs)


class FetchWaiters:
    """Which parked fetches wait for which log. Used from the loop's thread only."""

    __slots__ = ("_by_log",)

    def __init__(self) -> None:
        # State: no empty sets.
        self._by_log: dict[PartitionLog, set[ParkedFetch]] = {}

    def park(self, logs: Iterable[PartitionLog]) -> ParkedFetch:
        """Register a fetch; from now on it misses no change of these logs."""
        parked = ParkedFetch(self, tuple(logs))
        for log in parked._logs:
            self._by_log.setdefault(log, set()).add(parked)
        return parked

    def wake(self, log: PartitionLog) -> None:
        """Wake the fetches that wait for `log`: it has more to read, or is gone."""
        for parked in self._by_log.get(log, ()):
            parked.wake(log)

    def forget(self, parked: ParkedFetch, logs: Iterable[PartitionLog]) -> None:
        """Take a fetch out of every log's set."""
        for log in logs:
            waiting = self._by_log.get(log)
            if waiting is not None:
                waiting.discard(parked)
                if not waiting:
                    del self._by_log[log]

    @property
    def parked_count(self) -> int:
        """How many fetches wait."""
        return len({parked for waiting in self._by_log.values() for parked in waiting})

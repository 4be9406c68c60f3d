"""The logs that a fetch waits for, and which of its partitions each of them is.

A fetch without a session watches its logs while it waits. A session keeps its watch until the next
request, which then adds only what is new: for a consumer of a thousand partitions that is most of the
work. It covers all partitions of the session that have a log, also those that requests have read which
did not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from server.durability.fetch_waiters import FetchWaiters
from server.fetching.asked_partitions import AskedPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@loop_thread
class Watch:
    """The logs of some partitions, each of which wakes the fetch when it changes."""

    __slots__ = ("_by_log", "_logs", "parked")

    def __init__(self, waiters: FetchWaiters) -> None:
        self.parked = waiters.park()
        """Waits for the logs."""
        # State: the same pairs, by the log and by the partition.
        self._by_log: dict[PartitionLog, AskedPartition] = {}
        self._logs: dict[AskedPartition, PartitionLog] = {}

    def cover(self, partitions: Iterable[AskedPartition]) -> None:
        """Watch the logs that these partitions have now. One that has changed since its read wakes the
        fetch."""
        logs, parked = self._logs, self.parked
        for asked in partitions:
            log = asked.log
            if logs.get(asked) is not log:
                self.uncover(asked)
                if log is not None:
                    logs[asked] = log
                    self._by_log[log] = asked
                    parked.watch(log)
            if log is not None and asked.has_changed:
                parked.wake(log)

    def uncover(self, asked: AskedPartition) -> None:
        """No longer watch the log of a partition, if it is covered."""
        log = self._logs.pop(asked, None)
        if log is not None:
            del self._by_log[log]
            self.parked.unwatch(log)

    def take_changed(self) -> Iterator[AskedPartition]:
        """Yields the partitions whose logs have woken the fetch since the last call, each once.

        Those that are no longer covered are left out.
        """
        for log in self.parked.take_woken():
            asked = self._by_log.get(log)
            if asked is not None:
                yield asked

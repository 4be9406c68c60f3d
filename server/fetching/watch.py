"""The logs that a fetch waits for, and which of its partitions each of them is.

A fetch without a session watches its logs while it waits. A session keeps its watch until the next
request, which then adds only what is new: for a consumer of a thousand partitions that is most of the
work.
"""

from __future__ import annotations

from collections.abc import Iterable

from server.durability.fetch_waiters import FetchWaiters
from server.fetching.asked_partitions import AskedPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@loop_thread
class Watch:
    """The logs of some partitions, each of which wakes the fetch when it changes."""

    __slots__ = ("_by_log", "parked")

    def __init__(self, waiters: FetchWaiters) -> None:
        self.parked = waiters.park()
        """Waits for the logs."""
        self._by_log: dict[PartitionLog, AskedPartition] = {}

    def cover(self, partitions: Iterable[AskedPartition]) -> None:
        """Watch the logs of these partitions, too. One that has changed since its read wakes the fetch.

        A log stays that of the partition with which it was covered first.
        """
        by_log, parked = self._by_log, self.parked
        for asked in partitions:
            log = asked.log
            if log is None:
                continue
            if log not in by_log:
                by_log[log] = asked
                parked.watch(log)
            if asked.has_changed:
                parked.wake(log)

    def take_changed(self) -> list[AskedPartition]:
        """Returns the partitions whose logs have woken the fetch since the last call, each once."""
        return [self._by_log[log] for log in self.parked.take_woken()]

    def resume(self) -> None:
        """Wait again, in the next request of the session. What it has read already is not read again."""
        self.parked.resume()
        for asked in self.take_changed():
            if asked.has_changed and asked.log is not None:
                self.parked.wake(asked.log)

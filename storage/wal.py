"""What is durable: which logs hold bytes that no sync covers, and the round that syncs them all.

One round takes every dirty log and syncs them at the same time; a log that is appended to meanwhile
is dirty for the next round. A failed sync is final: the log's directory goes offline, and nothing that
waited for it is ever acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from storage.errors import StorageError
from storage.log import PartitionLog

_log = logging.getLogger("storage.wal")

SYNC_THREADS = 16
"""Measured on ext4, 64 files of 64 KiB each: 18 ms one after the other, 10.5 with 4 threads, 7.3 with
16, 6.2 with 64. (Why not syncfs: ARCHITECTURE.md §4.)"""


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
        """Sync all dirty logs; what is on disk now.

        A sync that fails is final: the log's directory is offline then. Logs that are offline at the
        end of the round are left out, whatever became of their own syncs.
        """
        dirty = self._take_dirty()
        if len(dirty) <= 1:
            synced = _sync(dirty)
        else:
            # A share each, because handing over every file costs as much as a small file's sync.
            shares = [dirty[first::SYNC_THREADS] for first in range(min(SYNC_THREADS, len(dirty)))]
            synced = [each for found in self._threads().map(_sync, shares) for each in found]
        return tuple(each for each in synced if each.log.offline_reason is None)

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="fdatasync")
        return self._executor

    def _take_dirty(self) -> list[PartitionLog]:
        dirty: dict[PartitionLog, None] = {}
        for _ in range(len(self._dirty)):
            dirty[self._dirty.popleft()] = None
        return list(dirty)

    def close(self) -> None:
        """Give the threads back."""
        if self._executor is not None:
            self._executor.shutdown()


def _sync(logs: Iterable[PartitionLog]) -> list[Synced]:
    """Sync one log after the other; those whose sync worked."""
    synced = []
    for log in logs:
        if log.offline_reason is not None:
            continue
        try:
            synced.append(Synced(log, log.sync()))
        except StorageError as error:
            _log.error("%s: the sync failed, which is final: %s", log.topic_partition, error)
    return synced

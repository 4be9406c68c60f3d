"""Tracks which logs hold unsynced bytes, and syncs them all in one round.

A round syncs all dirty logs in parallel; a log that gets an append meanwhile is dirty for the next
round. A failed sync is final: the log's directory goes offline, and nothing that waited for the sync is
ever acknowledged.

    begin_round -> SyncThreads -> end_round      if each dirty log needs one fdatasync: nearly always
    sync_round, on a worker thread               else: after a roll, or on a file system for fault tests
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.files.files import BegunSync
from storage.files.sync_threads import SyncThreads
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("storage.log.sync_rounds")

SYNC_THREADS = 16
"""Measured on ext4, 64 files of 64 KiB each: 18 ms one after the other, 10.5 with 4 threads, 7.3 with
16, 6.2 with 64. (Why not syncfs: docs/design/decisions.md.)"""


@dataclass(frozen=True, slots=True)
class Synced:
    """A log, and the offset below which it is on disk."""

    log: PartitionLog
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class _Begun:
    """A log's part of a running round of `SyncThreads`, with the result it will have."""

    synced: Synced
    sync: BegunSync


@loop_thread
class SyncRounds:
    """The dirty logs of a broker. Runs one round at a time, of either kind."""

    __slots__ = ("_begun", "_dirty", "_executor", "_threads")

    def __init__(self, threads: SyncThreads | None = None) -> None:
        # Constant after construction
        self._threads = threads if threads is not None else SyncThreads(SYNC_THREADS)
        # State. A deque, because the loop appends while a worker pops, and both are atomic.
        self._dirty: deque[PartitionLog] = deque()
        self._begun: tuple[_Begun, ...] = ()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def has_dirty(self) -> bool:
        """Whether a round would have work."""
        return bool(self._dirty)

    def mark_dirty(self, log: PartitionLog) -> None:
        """Record that `log` has unsynced bytes."""
        self._dirty.append(log)

    # ---------------------------------------------------------------- rounds without a worker

    def begin_round(self) -> bool:
        """Start to sync all dirty logs. Returns False, with none started, if it takes `sync_round`."""
        dirty = [log for log in self._take_dirty() if log.offline_reason is None]
        begun: list[_Begun] = []
        try:
            for log in dirty:
                synced, sync = Synced(log, log.log_end_offset), log.begin_sync()
                if sync is None:
                    break
                begun.append(_Begun(synced, sync))
            if begun and len(begun) == len(dirty) and self._can_begin(begun):
                self._begun = tuple(begun)
        finally:
            if not self._begun:
                for each in begun:
                    each.sync.abandon()
                self._dirty.extend(dirty)
        return bool(self._begun)

    def _can_begin(self, begun: list[_Begun]) -> bool:
        """Start the threads. Returns False if the system has no thread or memory left."""
        try:
            self._threads.begin([each.sync.descriptor for each in begun])
        except (MemoryError, RuntimeError) as error:
            _log.warning("a sync round runs on a worker instead of the sync threads: %s", error)
            return False
        return True

    @property
    def round_event(self) -> int:
        """An eventfd that becomes readable when the started round is over."""
        return self._threads.fileno()

    @property
    def is_round_over(self) -> bool:
        """Whether a round was started, is over, and `end_round` was not called yet."""
        return bool(self._begun) and self._threads.is_over

    def end_round(self) -> tuple[Synced, ...]:
        """End the round that is over. Returns its synced logs, like `sync_round`."""
        begun, self._begun = self._begun, ()
        synced = []
        for each, error in zip(begun, self._threads.errors_of_round(), strict=True):
            with _reporting(each.synced.log):
                each.sync.end(error)
                synced.append(each.synced)
        return _in_service(synced)

    # ---------------------------------------------------------------- rounds on a worker

    @any_thread
    def sync_round(self) -> tuple[Synced, ...]:
        """Sync all dirty logs. Returns those that are synced and online.

        A failed sync is final: the log's directory is offline afterwards. A log that is offline at the
        end of the round is left out, even if its own sync worked.
        """
        dirty = self._take_dirty()
        try:
            if len(dirty) <= 1:
                return _in_service(_sync(dirty))
            # One share per worker: handing over each file costs as much as syncing a small file.
            shares = [dirty[first::SYNC_THREADS] for first in range(min(SYNC_THREADS, len(dirty)))]
            synced = [each for found in self._workers().map(_sync, shares) for each in found]
            return _in_service(synced)
        except BaseException:
            # As if the system had no thread left: the next round syncs them.
            self._dirty.extend(dirty)
            raise

    @any_thread
    def _workers(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")
        return self._executor

    @any_thread
    def _take_dirty(self) -> list[PartitionLog]:
        dirty: dict[PartitionLog, None] = {}
        for _ in range(len(self._dirty)):
            dirty[self._dirty.popleft()] = None
        return list(dirty)

    @any_thread
    def close(self) -> None:
        """Stop the threads."""
        self._threads.close()
        if self._executor is not None:
            self._executor.shutdown()


def _sync(logs: Iterable[PartitionLog]) -> list[Synced]:
    """Sync one log after the other. Returns those whose sync worked."""
    synced = []
    for log in logs:
        if log.offline_reason is None:
            with _reporting(log):
                synced.append(Synced(log, log.sync()))
    return synced


@contextmanager
def _reporting(log: PartitionLog) -> Iterator[None]:
    """Log a failed sync, after which the log has already gone offline."""
    try:
        yield
    except StorageError as error:
        _log.error("%s: the sync failed, which is final: %s", log.topic_partition, error)


def _in_service(round_: Iterable[Synced]) -> tuple[Synced, ...]:
    return tuple(each for each in round_ if each.log.offline_reason is None)

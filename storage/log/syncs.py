"""Syncs one log, and decides when a sync of it is due (flush.messages, flush.ms).

`storage/log/sync_rounds.py` syncs many logs at once, `server/durability/group_commit.py` runs its
rounds, and advances the high watermark after them.

Source: Apache Kafka, UnifiedLog.java (append), LogManager.scala (flushDirtyLogs).
"""

from __future__ import annotations

from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.files.files import BegunSync
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN
from storage.log.log_service import LogService
from storage.log.offsets import LogOffsets
from storage.log.segment_list import SegmentList
from storage.threads import any_thread, loop_thread


@any_thread
class LogSyncs:
    """The syncs of one log, and the part of it that none has covered. Its `PartitionLog` owns it."""

    __slots__ = ("_list", "_offsets", "_service", "_since_ms", "_synced_offset")

    def __init__(self, offsets: LogOffsets, segment_list: SegmentList, service: LogService) -> None:
        # Constant after construction
        self._offsets = offsets
        self._list = segment_list
        self._service = service
        # State: everything below `_synced_offset` is on disk. The rest has been waiting since
        # `_since_ms` or later; `_since_ms` is UNKNOWN only while nothing waits.
        self._synced_offset = offsets.end
        self._since_ms = UNKNOWN

    def sync(self) -> Offset:
        """Make everything that was appended before durable. See `PartitionLog.sync`."""
        self._note_begin()
        try:
            end_offset = self._list.sync()
        except StorageError as error:
            if self._service.is_retired:
                return self._offsets.high_watermark
            self._service.fail(error)
            raise
        self._note_synced(end_offset)
        return end_offset

    @loop_thread
    def begin(self) -> BegunSync | None:
        """Start a sync whose fdatasync another thread performs. See `PartitionLog.begin_sync`."""
        active = self._list.only_unsynced()
        if active is None:
            return None
        self._note_begin()
        try:
            begun = active.files.begin_sync()
        except StorageError:
            return None
        if begun is None:
            return None
        end_offset = self._offsets.end

        def end(error: int) -> None:
            with self._service.failing_with_the_disk():
                begun.end(error)
            self._note_synced(end_offset)

        return BegunSync(begun.descriptor, end, begun.abandon)

    def _note_begin(self) -> None:
        """A sync is about to read the log's end: later appends start a new waiting time."""
        self._since_ms = UNKNOWN

    def _note_synced(self, end_offset: Offset) -> None:
        self._synced_offset = max(self._synced_offset, end_offset)

    @loop_thread
    def appended(self, now_ms: int) -> None:
        """Record an append. Call it after the log's end has moved, because a sync goes by the end."""
        if self._since_ms == UNKNOWN:
            self._since_ms = now_ms

    def truncated(self) -> None:
        """Record that the log was truncated to its end."""
        self._synced_offset = min(self._synced_offset, self._offsets.end)

    def replaced(self) -> None:
        """Record that another log, all of which is on disk, has taken the place of this one."""
        self._synced_offset = self._offsets.end
        self._since_ms = UNKNOWN

    def is_due(self, config: LogConfig, now_ms: int) -> bool:
        """Returns whether the log must be synced now.

        Args:
            now_ms: UNKNOWN checks only flush.messages.
        """
        waiting = self._offsets.end - self._synced_offset
        if waiting <= 0:
            return False
        if waiting >= config.flush_messages:
            return True
        since_ms = self._since_ms
        return UNKNOWN not in (now_ms, since_ms) and now_ms - since_ms >= config.flush_ms

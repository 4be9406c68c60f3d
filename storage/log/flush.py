"""Counts what of a log is not synced, and decides when a sync is due (flush.messages, flush.ms).

`server/durability/group_commit.py` runs the syncs, and advances the high watermark after them.

Source: Apache Kafka, UnifiedLog.java (append), LogManager.scala (flushDirtyLogs).
"""

from __future__ import annotations

from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN
from storage.threads import any_thread, loop_thread


@any_thread
class Unsynced:
    """The unsynced part of a log. The syncing thread reports its syncs."""

    __slots__ = ("_since_ms", "_synced_offset")

    def __init__(self, end_offset: Offset) -> None:
        # State: everything below `_synced_offset` is on disk. The rest has been waiting since
        # `_since_ms` or later; `_since_ms` is UNKNOWN only while nothing waits.
        self._synced_offset = end_offset
        self._since_ms = UNKNOWN

    @loop_thread
    def appended(self, now_ms: int) -> None:
        """Record an append. Call it after the log's end has moved, because a sync goes by the end."""
        if self._since_ms == UNKNOWN:
            self._since_ms = now_ms

    def sync_begins(self) -> None:
        """Record that a sync is about to read the log's end: later appends start a new waiting time."""
        self._since_ms = UNKNOWN

    def synced(self, end_offset: Offset) -> None:
        """Record that everything below `end_offset` is on disk."""
        self._synced_offset = max(self._synced_offset, end_offset)

    def truncated(self, end_offset: Offset) -> None:
        """Record that the log was truncated to `end_offset`."""
        self._synced_offset = min(self._synced_offset, end_offset)

    def replaced(self, end_offset: Offset) -> None:
        """Record that another log, all of which is on disk, has taken the place of this one."""
        self._synced_offset = end_offset
        self._since_ms = UNKNOWN

    def is_due(self, config: LogConfig, end_offset: Offset, now_ms: int) -> bool:
        """Returns whether a log that ends at `end_offset` must be synced now.

        Args:
            now_ms: UNKNOWN checks only flush.messages.
        """
        waiting = end_offset - self._synced_offset
        if waiting <= 0:
            return False
        if waiting >= config.flush_messages:
            return True
        since_ms = self._since_ms
        return UNKNOWN not in (now_ms, since_ms) and now_ms - since_ms >= config.flush_ms

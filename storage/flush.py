"""How much of a log no sync has covered yet, and whether that is too much (flush.messages, flush.ms).

Source: Apache Kafka, UnifiedLog.java (append), LogManager.scala (flushDirtyLogs).
"""

from __future__ import annotations

from storage.log_config import LogConfig
from storage.manifest import UNKNOWN


class Unsynced:
    """Kept by a log: told of appends on the loop's thread, of syncs by the thread that does them."""

    __slots__ = ("_since_ms", "_synced_offset")

    def __init__(self, end_offset: int) -> None:
        # State: everything below `_synced_offset` is on disk. What is not has been waiting since
        # `_since_ms` or later, and it is UNKNOWN only while nothing is.
        self._synced_offset = end_offset
        self._since_ms = UNKNOWN

    def appended(self, now_ms: int) -> None:
        """Say that the log has grown; after its end has moved, which a sync goes by."""
        if self._since_ms == UNKNOWN:
            self._since_ms = now_ms

    def sync_begins(self) -> None:
        """Say that a sync is about to look how far the log goes: what comes later waits anew."""
        self._since_ms = UNKNOWN

    def synced(self, end_offset: int) -> None:
        """Say that everything below `end_offset` is on disk."""
        self._synced_offset = max(self._synced_offset, end_offset)

    def truncated(self, end_offset: int) -> None:
        """Say that the log ends here now."""
        self._synced_offset = min(self._synced_offset, end_offset)

    def is_due(self, config: LogConfig, end_offset: int, now_ms: int) -> bool:
        """Whether a sync is wanted of a log that goes on to `end_offset`.

        Args:
            now_ms: UNKNOWN asks for flush.messages only.
        """
        waiting = end_offset - self._synced_offset
        if waiting <= 0:
            return False
        if waiting >= config.flush_messages:
            return True
        since_ms = self._since_ms
        return UNKNOWN not in (now_ms, since_ms) and now_ms - since_ms >= config.flush_ms

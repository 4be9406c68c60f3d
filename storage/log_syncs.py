"""What of one log no sync has covered: bytes of its last segments, a name in its directory."""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.begun_sync import BegunSync
from storage.errors import SegmentRemoved
from storage.files import FileSystem
from storage.segment import Segment


class LogSyncs:
    """Kept by a log's `SegmentList`, whose `state_lock` guards it too."""

    __slots__ = ("_directory", "_directory_is_dirty", "_fs", "_state_lock", "_unsynced")

    def __init__(
        self, fs: FileSystem, directory: str, active: Segment, state_lock: threading.Lock
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._state_lock = state_lock
        # State, changed under `state_lock`: the active segment is the last one.
        self._unsynced = [active]
        self._directory_is_dirty = False

    def rolled(self, active: Segment) -> None:
        """Say that the log goes on in a new file. The caller holds `state_lock`."""
        self._unsynced.append(active)
        self._directory_is_dirty = True

    def truncated(self, active: Segment) -> None:
        """Say that all but this one is safe or gone. The caller holds `state_lock`."""
        self._unsynced = [active]

    def begin(self) -> BegunSync | None:
        """Begin a sync of the active segment, if nothing else of the log needs one; None if it does."""
        with self._state_lock:
            if len(self._unsynced) > 1 or self._directory_is_dirty:
                return None
            active = self._unsynced[0]
        return active.files.begin_sync()

    def sync(self, end_of_log: Callable[[], int]) -> int:
        """Make all appended bytes safe; the log's end before it began. Any thread.

        Raises:
            StorageError: final; the log's directory must go offline.
        """
        with self._state_lock:
            end_offset, unsynced = end_of_log(), list(self._unsynced)
            # The active one may take more bytes before this sync is over, and be sealed with them.
            sealed = unsynced[:-1]
            directory_is_dirty, self._directory_is_dirty = self._directory_is_dirty, False
        for segment in unsynced:
            try:
                segment.files.sync()
            except SegmentRemoved:
                continue
        if directory_is_dirty:
            self._fs.sync_directory(self._directory)
        with self._state_lock:
            self._unsynced = [each for each in self._unsynced if each not in sealed]
        return end_offset

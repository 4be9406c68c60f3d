"""What of one log no sync has covered: bytes of its last segments, names of its files, its own name."""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.begun_sync import BegunSync
from storage.errors import SegmentRemoved
from storage.files import FileSystem
from storage.new_names import NewNames
from storage.segment import Segment


class LogSyncs:
    """Kept by a log's `SegmentList`, whose `state_lock` guards it too."""

    __slots__ = (
        "_directory",
        "_fs",
        "_names_made",
        "_names_synced",
        "_state_lock",
        "_unsynced",
        "new_names",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        active: Segment,
        state_lock: threading.Lock,
        *,
        is_new: bool,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._state_lock = state_lock
        self.new_names = NewNames(fs, directory, are_safe=not is_new)
        # State, changed under `state_lock`: the active segment is the last one.
        self._unsynced = [active]
        # How many names were made in the directory, and how many of them are safe.
        self._names_made = 0
        self._names_synced = 0

    def rolled(self, active: Segment) -> None:
        """Say that the log goes on in a new file. The caller holds `state_lock`."""
        self._unsynced.append(active)
        self._names_made += 1

    def truncated(self, active: Segment) -> None:
        """Say that all but this one is safe or gone. The caller holds `state_lock`."""
        self._unsynced = [active]

    def begin(self) -> BegunSync | None:
        """Begin a sync of the active segment, if nothing else of the log needs one; None if it does."""
        with self._state_lock:
            if len(self._unsynced) > 1 or self._names_synced < self._names_made:
                return None
            if not self.new_names.are_safe:
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
            names_made, names_synced = self._names_made, self._names_synced
        for segment in unsynced:
            try:
                segment.files.sync()
            except SegmentRemoved:
                continue
        self.new_names.make_safe()
        if names_synced < names_made:
            self._fs.sync_directory(self._directory)
        with self._state_lock:
            self._names_synced = max(self._names_synced, names_made)
            self._unsynced = [each for each in self._unsynced if each not in sealed]
        return end_offset

"""Syncs the unsynced parts of one log: bytes of its last segments, names of its files, its own name."""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.files.begun_sync import BegunSync
from storage.files.errors import SegmentRemoved
from storage.files.files import FileSystem
from storage.log.new_files import NewFiles
from storage.log.new_names import NewNames
from storage.segment.segment import Segment


class LogSyncs:
    """The unsynced parts of a log. Its `SegmentList` owns it and guards it with `state_lock`."""

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
        new_files: NewFiles | None,
    ) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._state_lock = state_lock
        self.new_names = NewNames(fs, directory, are_safe=not is_new, files=new_files)
        # State, changed under `state_lock`: segments with unsynced bytes; the last one is active.
        self._unsynced = [active]
        # The number of names made in the directory, and how many of them are synced.
        self._names_made = 0
        self._names_synced = 0

    def rolled(self, active: Segment) -> None:
        """Record that the log continues in a new segment. The caller holds `state_lock`."""
        self._unsynced.append(active)
        self._names_made += 1

    def truncated(self, active: Segment) -> None:
        """Record that all other segments are synced or removed. The caller holds `state_lock`."""
        self._unsynced = [active]

    def begin(self) -> BegunSync | None:
        """Start a sync of the active segment. Returns None if other parts of the log need one too."""
        with self._state_lock:
            if len(self._unsynced) > 1 or self._names_synced < self._names_made:
                return None
            if not self.new_names.are_safe:
                return None
            active = self._unsynced[0]
        return active.files.begin_sync()

    def sync(self, end_of_log: Callable[[], int]) -> int:
        """Sync all appended bytes. Returns the log's end from before the sync. Any thread may call it.

        Raises:
            StorageError: final; the log's directory must go offline.
        """
        with self._state_lock:
            end_offset, unsynced = end_of_log(), list(self._unsynced)
            # Appends may add to the active one during this sync and then seal it, so it stays listed.
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

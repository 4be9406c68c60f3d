"""The names that lead to a new log: a crash may take them until they are synced.

    <log directory>/<topic>/<partition>/manifest

A new log is made without a sync, so that many of them are made in the time of one. Nothing of it is
promised yet. Before the first promise, be it a synced batch or a new manifest, its names are made safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.errors import SyncFailed
from storage.files import FileSystem
from storage.paths import MANIFEST, join


class NewNames:
    """One new log's names. Any thread."""

    __slots__ = ("_directory", "_failure", "_fs", "_lock", "are_safe")

    def __init__(self, fs: FileSystem, directory: str, *, are_safe: bool) -> None:
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._lock = threading.Lock()
        # State, changed under the lock.
        self.are_safe = are_safe
        """Whether the log is there after a crash."""
        self._failure: SyncFailed | None = None

    def make_safe(self) -> None:
        """Sync the manifest, the log's directory and those above it; at once if that was done.

        Raises:
            SyncFailed: one of the syncs failed, now or before, and that is final.
            DiskError: a file or directory cannot be opened.
        """
        if self.are_safe:
            return
        with self._lock:
            if self.are_safe:
                return
            self._sync(self._files_and_directories_above)
            self.are_safe = True

    def sync_files(self) -> None:
        """Sync the manifest and the log's own directory. Raises as `make_safe`."""
        with self._lock:
            if not self.are_safe:
                self._sync(self._files)

    def directories_above_are_safe(self) -> None:
        """Say that they were synced after the log was made, and after `sync_files`."""
        with self._lock:
            self.are_safe = self._failure is None

    def _sync(self, sync: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            sync()
        except SyncFailed as error:
            # The system tells of it once: the next sync would succeed.
            self._failure = error
            raise

    def _files_and_directories_above(self) -> None:
        self._files()
        topic = self._directory.rpartition("/")[0]
        self._fs.sync_directory(topic)
        self._fs.sync_directory(topic.rpartition("/")[0])

    def _files(self) -> None:
        manifest = self._fs.open(join(self._directory, MANIFEST))
        try:
            manifest.sync()
        finally:
            manifest.close()
        self._fs.sync_directory(self._directory)

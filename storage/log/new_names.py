"""The names that lead to a new log. A crash may lose them until they are synced.

    <log directory>/<topic>/<partition>/manifest

A new log is created without a sync, so that one sync can cover many new logs, and even without files
(`new_files.py`). Until then the broker has promised nothing about it. The first promise, a synced batch
or a new manifest, creates the files and syncs the names first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.files.errors import SyncFailed
from storage.files.files import FileSystem
from storage.files.paths import MANIFEST, join
from storage.log.new_files import NewFiles


class NewNames:
    """The names of one new log. Any thread may call it."""

    __slots__ = ("_directory", "_failure", "_fs", "_lock", "_new_files", "are_safe")

    def __init__(
        self, fs: FileSystem, directory: str, *, are_safe: bool, files: NewFiles | None
    ) -> None:
        """Take the log's `files` if these may not exist yet."""
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._lock = threading.Lock()
        # State, changed under the lock.
        self.are_safe = are_safe
        """Whether the log exists after a crash."""
        self._failure: SyncFailed | None = None
        # Until they are made.
        self._new_files = files

    @property
    def are_made(self) -> bool:
        """Whether the log's files exist."""
        new_files = self._new_files
        return new_files is None or new_files.are_made

    def make_files(self) -> None:
        """Create the log's files unless they exist. Raises like `NewFiles.make`."""
        new_files = self._new_files
        if new_files is not None:
            new_files.make()
            self._new_files = None

    def give_up_files(self) -> None:
        """Return when no thread creates a file of the log any more: its topic was deleted."""
        new_files = self._new_files
        if new_files is not None:
            new_files.give_up()

    def make_safe(self) -> None:
        """Sync the manifest, the log's directory and those above it, unless that was already done.

        Raises:
            LogOffline: the topic was deleted.
            SyncFailed: a sync failed, now or earlier, which is final.
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
        """Sync the manifest and the log's own directory. Raises like `make_safe`."""
        with self._lock:
            if not self.are_safe:
                self._sync(self._files)

    def mark_directories_synced(self) -> None:
        """Record a sync of the directories above after `sync_files`, or of the whole disk.

        Does nothing for a log without files.
        """
        with self._lock:
            self.are_safe = self._failure is None and self.are_made

    def _sync(self, sync: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            sync()
        except SyncFailed as error:
            # The kernel reports the failure only once: the next sync would succeed.
            self._failure = error
            raise

    def _files_and_directories_above(self) -> None:
        self._files()
        topic = self._directory.rpartition("/")[0]
        self._fs.sync_directory(topic)
        self._fs.sync_directory(topic.rpartition("/")[0])

    def _files(self) -> None:
        self.make_files()
        manifest = self._fs.open(join(self._directory, MANIFEST))
        try:
            manifest.sync()
        finally:
            manifest.close()
        self._fs.sync_directory(self._directory)

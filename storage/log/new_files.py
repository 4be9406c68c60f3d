"""The files of a new log, which are created once, after the log itself.

    planned -> made         in the background, or before the first write if that comes earlier
            -> given up     the topic was deleted before

A topic exists as soon as the metadata says so. Its logs have nothing to store until the first write, so
no client has to wait for their files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.files.errors import LogOffline
from storage.files.files import FileSystem
from storage.log.use import was_used


class NewFiles:
    """The files of one new log. Any thread may call it."""

    __slots__ = ("_create", "_directory", "_fs", "_is_given_up", "_lock", "_was_tried", "are_made")

    def __init__(self, fs: FileSystem, directory: str, create: Callable[[], None]) -> None:
        """`create` makes the log's directory and all files in it, and raises StorageError."""
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._create = create
        self._lock = threading.Lock()
        # State, changed under the lock.
        self._is_given_up = False
        self._was_tried = False
        self.are_made = False
        """Whether the files exist; not yet after a crash."""

    def make(self) -> None:
        """Create the files unless they exist. If another thread is creating them, wait for it.

        Raises:
            LogOffline: the topic was deleted.
            DiskError: the files cannot be created; a later call tries again.
        """
        if self.are_made:
            return
        with self._lock:
            if self.are_made:
                return
            if self._is_given_up:
                raise LogOffline(self._directory, "its topic was deleted")
            if self._was_tried:
                self._remove_remains()
            self._was_tried = True
            self._create()
            self.are_made = True

    def _remove_remains(self) -> None:
        """Remove what a failed attempt has left; nobody can write before an attempt succeeds."""
        if self._fs.exists(self._directory):
            assert not was_used(self._fs, self._directory)
            self._fs.remove_tree(self._directory)

    def give_up(self) -> None:
        """Return when no thread creates a file any more, because the log's directory is removed next."""
        with self._lock:
            self._is_given_up = True

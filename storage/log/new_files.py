"""The files of a new log and the names that lead to it, until a crash can no longer take them.

    <log directory>/<topic>/<partition>/manifest

    planned -> made -> safe     no file; all files, which a crash may lose; synced with their names
            -> never made       the topic was deleted before

A topic exists as soon as the metadata says so. Its logs have nothing to store until the first write, so
no client has to wait for their files: they are made in the background, or before the first write if that
comes earlier. They are made without a sync, so that one sync can cover many new logs. The first promise
about a log, a synced batch or a new manifest, makes its files and their names safe first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from storage.files.errors import LogOffline, NoSpace, SyncFailed
from storage.files.files import FileSystem
from storage.files.paths import MANIFEST, join
from storage.log.log_service import LogService
from storage.recovery.was_used import was_used
from storage.threads import any_thread


@any_thread
class NewFiles:
    """The files of one log that may not be safe yet."""

    __slots__ = (
        "_create",
        "_directory",
        "_failure",
        "_fs",
        "_making",
        "_service",
        "_syncing",
        "_was_tried",
        "are_safe",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        service: LogService,
        *,
        create: Callable[[], None] | None = None,
        are_safe: bool = False,
    ) -> None:
        """Take the files of the log in `directory`.

        Args:
            create: makes the directory and all files in it, and raises StorageError; None if they exist.
            are_safe: whether a crash cannot take them.
        """
        # Constant after construction
        self._fs = fs
        self._directory = directory
        self._service = service
        self._making = threading.Lock()
        self._syncing = threading.Lock()
        # State, changed while the files are made.
        self._create = create
        self._was_tried = False
        # State, changed while they are synced.
        self._failure: SyncFailed | None = None
        self.are_safe = are_safe
        """Whether the log exists after a crash."""

    # ---------------------------------------------------------------- making them

    @property
    def are_made(self) -> bool:
        """Whether the files exist."""
        return self._create is None

    def make(self) -> None:
        """Create the files unless they exist. If another thread is creating them, wait for it.

        Raises:
            LogOffline: the topic was deleted.
            DiskError: the files cannot be created; a later call or the first write tries again.
        """
        if self.are_made:
            return
        with self._making:
            if self._create is None:
                return
            if self._service.is_retired:
                raise LogOffline(self._directory, "its topic was deleted")
            if self._was_tried:
                self._remove_remains()
            self._was_tried = True
            self._create()
            self._create = None

    def _remove_remains(self) -> None:
        """Remove what a failed attempt has left; no thread can write before an attempt succeeds."""
        if self._fs.exists(self._directory):
            assert not was_used(self._fs, self._directory)
            self._fs.remove_tree(self._directory)

    def give_up(self) -> None:
        """Return when no thread is creating a file of the log: its topic was deleted."""
        with self._making:
            assert self._service.is_retired

    # ---------------------------------------------------------------- making them safe

    def make_safe(self) -> None:
        """Create the files if needed, and sync the manifest and all directories that lead to it.

        Raises:
            LogOffline: the topic was deleted.
            SyncFailed: a sync failed, now or earlier, which is final.
            DiskError: a file or directory cannot be opened.
        """
        if self.are_safe:
            return
        with self._syncing:
            if self.are_safe:
                return
            self._sync(self._files_and_directories_above)
            self.are_safe = True

    def sync(self) -> None:
        """Sync the files, but not the directories above: `mark_safe` says that these are synced, too.

        Raises:
            NoSpace: no descriptor is left; nothing has changed.
            StorageError: the disk failed; the log's directory is offline.
        """
        with self._service.failing_with_the_disk(NoSpace), self._syncing:
            if not self.are_safe:
                self._sync(self._files)

    def mark_safe(self) -> None:
        """Record a sync of the directories above after `sync`, or of the whole disk.

        Does nothing for a log without files.
        """
        with self._syncing:
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
        self.make()
        manifest = self._fs.open(join(self._directory, MANIFEST))
        try:
            manifest.sync()
        finally:
            manifest.close()
        self._fs.sync_directory(self._directory)

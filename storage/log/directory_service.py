"""Tracks whether a log directory is in service.

in service -> offline: its disk failed, or it is gone      (no way back until the next start)
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator

from storage.files.errors import DirectoryOffline, MissingFile, StorageError, SyncFailed
from storage.files.files import FileSystem
from storage.files.paths import META_PROPERTIES, SYNC_FAILED, join
from storage.threads import any_thread

_log = logging.getLogger("storage.log.directory_service")


@any_thread
class DirectoryService:
    """The service state of one log directory."""

    __slots__ = ("_fs", "_on_offline", "_path", "offline_reason")

    def __init__(self, fs: FileSystem, path: str, on_offline: Callable[[str], None]) -> None:
        """`on_offline` takes the directory's logs out of service; it gets the reason."""
        # Constant after construction
        self._fs = fs
        self._path = path
        self._on_offline = on_offline
        # State
        self.offline_reason: str | None = None

    def go_offline(self, reason: str) -> None:
        """Take the directory's logs out of service until the next start."""
        if self.offline_reason is None:
            _log.error("%s is offline: %s", self._path, reason)
            self.offline_reason = reason
            self._on_offline(reason)

    def disk_failed(self, error: StorageError) -> None:
        """Go offline. After a failed sync, leave a mark for the next start if the disk still takes it.

        The mark need not survive a power cut, because the page cache that it warns of does not either.
        """
        self.go_offline(str(error))
        if isinstance(error, SyncFailed):
            with contextlib.suppress(StorageError):
                self._fs.write_bytes(join(self._path, SYNC_FAILED), f"{error}\n".encode())

    def check_present(self) -> None:
        """Go offline if the directory is gone: its logs must not be created again below its mount.

        Raises:
            MissingFile: it is gone.
            DiskError: the disk failed.
        """
        mark = join(self._path, META_PROPERTIES)
        if not self._fs.exists(mark):
            error = MissingFile("create", mark, errno.ENOENT, "the log directory is gone")
            self.disk_failed(error)
            raise error

    @contextlib.contextmanager
    def failed_syncs_are_final(self) -> Iterator[None]:
        """Take the directory out of service if a sync in the body fails, or if it is gone."""
        try:
            yield
        except MissingFile:
            self.check_present()
            raise
        except SyncFailed as error:
            self.disk_failed(error)
            raise

    def check_online(self) -> None:
        """Raise DirectoryOffline unless the directory is in service."""
        if self.offline_reason is not None:
            raise DirectoryOffline(self._path, self.offline_reason)

"""Makes the files of new logs, and makes them safe from a crash, for many logs at once.

    make_files       the files of each log, without a sync
    make_safe        a sync of each log's files, then one of each directory above
    make_all_safe    one sync of the whole disk instead

`storage/log/new_files.py` does the same for one log, which does not wait for these if it is written to
before.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from storage.files.errors import DiskError, MissingFile, StorageError
from storage.files.files import FileSystem
from storage.log.directory_service import DirectoryService
from storage.log.log import PartitionLog
from storage.threads import any_thread

_log = logging.getLogger("storage.log.new_logs")


@any_thread
class NewLogs:
    """The new logs of one log directory. Its `LogDirectory` owns it; worker threads call it."""

    __slots__ = ("_fs", "_path", "_service")

    def __init__(self, fs: FileSystem, path: str, service: DirectoryService) -> None:
        # Constant after construction
        self._fs = fs
        self._path = path
        self._service = service

    def make_files(self, logs: Iterable[PartitionLog]) -> None:
        """Create the files of planned logs, without a sync; skips deleted logs.

        Raises:
            DirectoryOffline: the directory is out of service.
            DiskError: the disk failed; a later call or each log's first write tries again.
        """
        for log in logs:
            self._service.check_online()
            _unless_retired(log, log.new_files.make)

    def make_safe(self, logs: Sequence[PartitionLog]) -> None:
        """Sync new logs of this directory, so that they survive a crash; skips deleted ones.

        Raises:
            DirectoryOffline: the directory is out of service.
            DiskError: the disk failed.
        """
        self._service.check_online()
        made = [log for log in logs if _unless_retired(log, log.new_files.sync)]
        with self._service.failed_syncs_are_final():
            for path in {log.directory.rpartition("/")[0] for log in made}:
                self._sync_if_there(path)
            self._fs.sync_directory(self._path)
        for log in made:
            log.new_files.mark_safe()

    def make_all_safe(self, logs: Iterable[PartitionLog]) -> bool:
        """Do the work of `make_safe` for logs with files, with a single sync of the whole disk.

        Returns False if that failed, perhaps because of another program's file: use `make_safe`.

        Raises:
            DirectoryOffline: the directory is out of service.
        """
        self._service.check_online()
        try:
            self._fs.sync_all(self._path)
        except DiskError as error:
            _log.warning("%s: syncing new logs one by one: %s", self._path, error)
            return False
        for log in logs:
            # Does nothing for a log that was deleted before it had files.
            log.new_files.mark_safe()
        return True

    def _sync_if_there(self, path: str) -> None:
        # The topic may be deleted at this moment, with its directory.
        with contextlib.suppress(MissingFile):
            self._fs.sync_directory(path)


def _unless_retired(log: PartitionLog, work: Callable[[], None]) -> bool:
    """Do work on the files of a log that may be deleted at this moment. Returns whether it was not."""
    try:
        if not log.is_retired:
            work()
    except StorageError:
        if not log.is_retired:
            raise
    return not log.is_retired

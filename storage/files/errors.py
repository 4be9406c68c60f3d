"""The errors of storage, and what happens after each.

    StorageError                  the disk or the data on it is broken; nothing more was acknowledged
    |-- DiskError                 one file operation failed; carries path and errno
    |   |-- NoSpace               disk full or no descriptor left: refused; the log stays in service
    |   |-- LinksRefused          the file system makes no hard links: nothing was done
    |   |-- MissingFile           a file that should exist does not
    |   `-- SyncFailed            a failed fsync is final: the log directory goes offline
    |-- DirectoryOffline          a log directory is out of service until the next start
    |-- DirectoryLocked           another process owns the log directory: do not start
    |-- MissingMetadata           there are topics, but no metadata that name them: do not start
    |-- ForeignDirectory          the directory belongs to another cluster or node: do not start
    |-- FormatFromTheFuture       a later release wrote this file: do not start, do not touch it
    |-- DamagedFile               a checksummed file does not match its checksum, or is cut short
    |   `-- DamagedSidecar        a key sidecar is damaged, or of another segment: it is rebuilt
    |-- CorruptLog                bytes of a log that were safe on disk are damaged
    |-- LogOffline                one log is out of service, with the reason; others are served
    |-- SegmentRemoved            a segment was truncated or deleted while a reader used it
    |-- BackupRefused             a directory cannot take or give a backup: nothing has changed
    `-- SwapRefused               cleaned segments no longer fit the log: the pass is thrown away

`NotCached` is not a StorageError: it says that a read would have to wait for the disk.

Expected answers (offset out of range, a sequence out of order) are `ErrorCode` values, not exceptions.
"""

from __future__ import annotations


class StorageError(Exception):
    """An error of storage: the disk failed, or its data cannot be used."""


class DiskError(StorageError):
    """A file operation failed. `errno` is the system's number, `path` the file it concerned."""

    def __init__(self, action: str, path: str, errno: int, text: str) -> None:
        super().__init__(f"{action} {path}: {text} (errno {errno})")
        self.action = action
        self.path = path
        self.errno = errno


class NoSpace(DiskError):
    """The disk, a quota or the table of open files is full. Nothing was done; a retry may succeed."""


class LinksRefused(DiskError):
    """The file system makes no hard link, at all or no other one of this file. Nothing was done."""


class MissingFile(DiskError):
    """A file or directory that should exist does not."""


class SyncFailed(DiskError):
    """An fsync failed: what the disk holds is unknown from now on, so no one retries it."""


class DirectoryOffline(StorageError):
    """The log directory `path` is out of service for `reason` until the broker is restarted."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"log directory {path} is offline: {reason}")
        self.path = path
        self.reason = reason


class DirectoryLocked(StorageError):
    """Another process holds the log directory `path`; two brokers would destroy it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"log directory {path} is in use by another process")
        self.path = path


class ForeignDirectory(StorageError):
    """The log directory's meta.properties names another cluster or node than this broker's."""


class MissingMetadata(StorageError):
    """The metadata at `path` are missing or empty, although `topic`, a topic's directory, exists."""

    def __init__(self, path: str, topic: str) -> None:
        super().__init__(
            f"{path} is missing or empty, but {topic} belongs to a topic: put the metadata back, or"
            " configure their place (log.dirs, metadata.log.dir); to start without topics, move the"
            " topic directories away"
        )
        self.path = path
        self.topic = topic


class MissingNodeMetadata(StorageError):
    """The node's metadata at `path` do not exist, although there are topics."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is missing, but there are topics: it says in which directories their logs are. Put"
            " it back from a backup. If there is none, create it as an empty directory: the broker then"
            " looks for the logs in its log directories; properties that were set on this broker only"
            " are lost"
        )
        self.path = path


class FormatFromTheFuture(StorageError):
    """`path` has format `found`, but this release reads up to `known`; the file is left alone."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a later release: its format is {found}, this one reads up to"
            f" {known}; start that release again, or restore an older copy of the data"
        )
        self.path = path
        self.found = found
        self.known = known


class DamagedFile(StorageError):
    """A checkpoint, snapshot, index or manifest is damaged; it is rebuilt from the segments."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} is damaged: {reason}")
        self.path = path
        self.reason = reason


class DamagedSidecar(DamagedFile):
    """A key sidecar is damaged, or not of the segment beside it: remove it and build it again."""


class CorruptLog(StorageError):
    """A segment is damaged at byte `position`, below what was safe on disk: the log goes offline."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogOffline(StorageError):
    """One log cannot be served, for `reason`; none of its files was removed."""

    def __init__(self, log: str, reason: str) -> None:
        super().__init__(f"{log} is offline: {reason}")
        self.log = log
        self.reason = reason


class SegmentRemoved(StorageError):
    """The segment's file is gone: the log was truncated or deleted. Read the log again."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was removed")
        self.path = path


class BackupRefused(StorageError):
    """A backup cannot be made, read or restored there, for the reason given; nothing has changed."""


class SwapRefused(StorageError):
    """The log changed under a cleaning pass, so its result was rejected; clean again."""


class UndoRefused(StorageError):
    """A cleaning pass cannot be undone; nothing has changed."""


class CutRefused(StorageError):
    """A cut would lose keys: cleaning has removed their older records below it. Nothing has changed."""


class NotCached(Exception):
    """A read that must not wait found its bytes not in memory: read them where waiting is allowed."""

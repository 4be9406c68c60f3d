"""Opens the repository of backups that a command names, and turns the errors of storage into its end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.base.command_end import EXIT_FAILED, CommandFailed
from storage.backup.backup_index import BackupIndex
from storage.backup.backup_store import BackupStore
from storage.backup.local_store import LocalBackupStore, open_repository
from storage.files.errors import DiskError, NoSpace, StorageError
from storage.files.files import FileSystem
from storage.files.local_files import LocalFileSystem, ReadOnlyFileSystem


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn an error of storage into a CommandFailed that says what to do."""
    try:
        yield
    except StorageError as error:
        raise CommandFailed(EXIT_FAILED, _advice(error)) from error


def _advice(error: StorageError) -> str:
    if isinstance(error, NoSpace) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full ({error}): no backup was made, and the earlier ones are as before; free"
            " space, for example with kompakt backup prune, and try again"
        )
    if isinstance(error, DiskError) and error.errno in (errno.EACCES, errno.EPERM):
        return f"{error}: run this as the user of the broker, or as root"
    return str(error)


def absolute(path: Path) -> str:
    """Returns the absolute path of a directory, which need not exist."""
    return str(path.resolve())


def to_read(repository: Path) -> BackupStore:
    """Returns the repository in a directory. Raises StorageError if there is none."""
    return open_repository(ReadOnlyFileSystem(), absolute(repository))


def to_write(repository: Path, fs: FileSystem | None = None) -> BackupStore:
    """Returns the repository in a directory, to change it. Raises StorageError if there is none."""
    return open_repository(fs or LocalFileSystem(), absolute(repository))


def ids_in(repository: Path | str) -> list[str]:
    """Returns the ids of backups for the completion of a command line: none if they cannot be read."""
    try:
        return LocalBackupStore(ReadOnlyFileSystem(), absolute(Path(repository))).ids()
    except StorageError:
        return []


def size_of(index: BackupIndex) -> int:
    """Returns the size of the files in a backup."""
    return sum(file.size for file in index.files)


def partitions_of(index: BackupIndex) -> int:
    """Returns the number of partitions in a backup."""
    return sum(len(topic.partitions) for topic in index.snapshot.topics)

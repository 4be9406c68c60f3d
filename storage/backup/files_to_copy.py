"""The files of a snapshot that a backup copies, where the broker has put them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from storage.backup.backup_index import log_path
from storage.files.errors import BackupRefused, DamagedFile, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import (
    HASH_KEY,
    META_PROPERTIES,
    SIGNING_KEY,
    SNAPSHOT_DESCRIPTOR,
    START_COUNTER,
    join,
)
from storage.snapshots.descriptor import SnapshotDescriptor, decode
from storage.snapshots.snapshot_files import snapshot_path

OWN_FILES = (META_PROPERTIES, HASH_KEY, START_COUNTER)
"""What every log directory has beside its topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """One file."""

    source: str
    """Where it is."""
    path: str
    """Its path in a backup."""
    size: int
    modified_ns: int


def read_descriptor(fs: FileSystem, path: str) -> SnapshotDescriptor:
    """Returns what a snapshot has, from the path of its snapshot.json.

    Raises:
        DamagedFile, FormatFromTheFuture: it cannot be read.
        BackupRefused: it is not where a snapshot of this broker is.
        DiskError: the disk failed, or there is none.
    """
    descriptor = decode(fs.read_bytes(path), path)
    expected = join(
        snapshot_path(descriptor.metadata_directory().path, descriptor.id), SNAPSHOT_DESCRIPTOR
    )
    if path != expected:
        text = f"{path} describes the snapshot at {expected}: it cannot be read from another place"
        raise BackupRefused(text)
    return descriptor


def files_of_snapshot(fs: FileSystem, descriptor: SnapshotDescriptor) -> list[SnapshotFile]:
    """Returns the files of a snapshot, in the order in which they are copied.

    Raises:
        DamagedFile: it lacks a file that each snapshot has.
        DiskError: the disk failed.
    """
    return list(_files(fs, descriptor))


def _files(fs: FileSystem, descriptor: SnapshotDescriptor) -> Iterator[SnapshotFile]:
    roots = {each.id: snapshot_path(each.path, descriptor.id) for each in descriptor.directories}
    for directory_id, root in roots.items():
        names = fs.list(root)
        for name in OWN_FILES:
            if name not in names:
                raise DamagedFile(root, f"the snapshot lacks {name}")
        for name in (*OWN_FILES, SIGNING_KEY):
            if name in names:
                yield _file(fs, join(root, name), f"{directory_id}/{name}")
    for topic in descriptor.topics:
        for partition in topic.partitions:
            path = log_path(topic, partition)
            source = join(roots[partition.directory], path.partition("/")[2])
            for name in _names(fs, source):
                yield _file(fs, join(source, name), join(path, name))


def _names(fs: FileSystem, directory: str) -> list[str]:
    try:
        return fs.list(directory)
    except MissingFile as error:
        raise DamagedFile(directory, "the snapshot lacks this log") from error


def _file(fs: FileSystem, source: str, path: str) -> SnapshotFile:
    size, modified_ns = fs.size(source), fs.modified_ns(source)
    return SnapshotFile(source=source, path=path, size=size, modified_ns=modified_ns)

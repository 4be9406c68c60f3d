"""The directories of snapshots: made, completed, listed, dropped.

    <log directory>/snapshots/<id>.part/    while it is made, and while it is dropped: a start removes it
    <log directory>/snapshots/<id>/         complete, in each log directory that it is of
        meta.properties, hash.key, signing.key, start-counter    copies
        <topic>.<topic id>/<partition>/    a log as after a clean stop (storage/log/linking.py)
        snapshot.json    in the metadata directory only; written last

A directory with its final name stays until someone drops the snapshot, also without `snapshot.json`: it
may hold the last copy of what the broker no longer has.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from storage.files.errors import DamagedFile, FormatFromTheFuture, MissingFile, StorageError
from storage.files.files import FileIdentity, FileSystem, remove_tree_durably
from storage.files.paths import (
    HASH_KEY,
    META_PROPERTIES,
    PART,
    SIGNING_KEY,
    SNAPSHOT_DESCRIPTOR,
    SNAPSHOTS,
    START_COUNTER,
    join,
)
from storage.snapshots.descriptor import SnapshotDescriptor, decode, encode
from storage.snapshots.pinned import PinnedBytes, count_pinned
from storage.threads import any_thread

_log = logging.getLogger("storage.snapshots.snapshot_files")

LABELS = (META_PROPERTIES, HASH_KEY, SIGNING_KEY, START_COUNTER)
"""The files of a log directory that a snapshot has copies of."""
FILES = frozenset({*LABELS, SNAPSHOT_DESCRIPTOR})
"""The files beside the directories of topics."""
TMP = ".tmp"
"""Ends the name of a file that is being replaced."""


class SnapshotExists(Exception):
    """Another snapshot has the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A snapshot on disk."""

    id: str
    descriptor: SnapshotDescriptor | None
    """None if the snapshot is not complete, or damaged."""
    reason: str = ""
    """Why there is no descriptor."""
    partitions_count: int = 0
    size_bytes: int = 0
    """The size of its segments."""

    @classmethod
    def complete(cls, descriptor: SnapshotDescriptor) -> Self:
        """Returns the snapshot that a descriptor describes."""
        partitions = [each for topic in descriptor.topics for each in topic.partitions]
        return cls(
            id=descriptor.id,
            descriptor=descriptor,
            partitions_count=len(partitions),
            size_bytes=sum(each.bytes for each in partitions),
        )


@any_thread
class SnapshotFiles:
    """The snapshots in the log directories of one broker. Keeps nothing. Worker threads only."""

    __slots__ = ("_directories", "_fs", "_metadata_directory")

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], *, metadata_directory: str
    ) -> None:
        """
        Args:
            directories: the paths of the log directories in service.
            metadata_directory: the one of them that has the metadata.
        """
        self._fs = fs
        self._directories = directories
        self._metadata_directory = metadata_directory

    # ---------------------------------------------------------------- making

    def begin(self, snapshot_id: str) -> None:
        """Create the directories of a new snapshot.

        Raises:
            SnapshotExists: a snapshot has this id. It is left alone.
            DiskError: the disk failed or is full; `abandon` removes what is there.
        """
        for directory in self._directories:
            for path in (
                snapshot_path(directory, snapshot_id),
                self.unfinished(directory, snapshot_id),
            ):
                if self._fs.exists(path):
                    raise SnapshotExists(snapshot_id)
        for directory in self._directories:
            part = self.unfinished(directory, snapshot_id)
            self._fs.make_directory(part)
            for name in LABELS:
                if self._fs.exists(join(directory, name)):
                    data = self._fs.read_bytes(join(directory, name))
                    self._fs.replace_durably(join(part, name), data, secret=True)

    def unfinished(self, directory: str, snapshot_id: str) -> str:
        """Returns the path in which a snapshot is made, in one log directory."""
        return snapshot_path(directory, snapshot_id) + PART

    def descriptor_path(self, snapshot_id: str) -> str:
        """Returns the path of a snapshot's descriptor."""
        return join(snapshot_path(self._metadata_directory, snapshot_id), SNAPSHOT_DESCRIPTOR)

    def leave_out(self, snapshot_id: str, topic_directory: str) -> None:
        """Remove a topic from a snapshot that is being made. Raises DiskError."""
        for directory in self._directories:
            self._fs.remove_tree(join(self.unfinished(directory, snapshot_id), topic_directory))

    def finish(self, descriptor: SnapshotDescriptor) -> None:
        """Make a new snapshot durable and complete.

        Raises:
            DiskError: it is not complete; `abandon` removes what is there.
        """
        for directory in self._directories:
            self._fs.sync_all(directory)
        for directory in self._directories:
            self._fs.rename(
                self.unfinished(directory, descriptor.id), snapshot_path(directory, descriptor.id)
            )
            self._fs.sync_directory(join(directory, SNAPSHOTS))
            self._fs.sync_directory(directory)
        path = self.descriptor_path(descriptor.id)
        self._fs.replace_durably(path, encode(descriptor), secret=True)

    def abandon(self, snapshot_id: str) -> None:
        """Remove what is there of a snapshot that could not be finished.

        A disk that fails is logged: the next start removes the rest.
        """
        with _logged(snapshot_id):
            self._make_incomplete(snapshot_id)
        for directory in self._directories:
            with _logged(snapshot_id):
                self._remove(directory, snapshot_id)

    # ---------------------------------------------------------------- listing

    def all(self) -> list[StoredSnapshot]:
        """Returns the snapshots, the oldest first; those that are not complete come last.

        Raises:
            DiskError: a directory cannot be read.
        """
        found = [self._read(each) for each in sorted(self._ids())]
        return sorted(found, key=_age)

    def _ids(self) -> set[str]:
        names = (name for each in self._directories for name in self._names(each))
        return {name for name in names if not name.endswith(PART)}

    def _names(self, directory: str) -> list[str]:
        try:
            return self._fs.list(join(directory, SNAPSHOTS))
        except MissingFile:
            return []

    def _read(self, snapshot_id: str) -> StoredSnapshot:
        path = self.descriptor_path(snapshot_id)
        try:
            descriptor = decode(self._fs.read_bytes(path), path)
        except MissingFile:
            return StoredSnapshot(id=snapshot_id, descriptor=None, reason="it was not completed")
        except (DamagedFile, FormatFromTheFuture) as error:
            return StoredSnapshot(id=snapshot_id, descriptor=None, reason=str(error))
        if descriptor.id != snapshot_id:
            reason = f"{path} is that of snapshot {descriptor.id}"
            return StoredSnapshot(id=snapshot_id, descriptor=None, reason=reason)
        return StoredSnapshot.complete(descriptor)

    # ---------------------------------------------------------------- what they hold of the disk

    def pinned(self) -> PinnedBytes:
        """Returns what all snapshots pin, also those that are not complete. Looks at every file.

        Raises:
            DiskError: a directory cannot be read.
        """
        return count_pinned(self._file_names())

    def _file_names(self) -> Iterator[tuple[str, FileIdentity]]:
        for directory in self._directories:
            for name in self._names(directory):
                for path in self._files_below(join(join(directory, SNAPSHOTS), name)):
                    yield name.removesuffix(PART), self._fs.identity(path)

    def _files_below(self, path: str) -> Iterator[str]:
        """Yield the files of a snapshot in one log directory."""
        for name in self._fs.list(path):
            if name.removesuffix(TMP) in FILES:
                yield join(path, name)
                continue
            for partition in self._fs.list(join(path, name)):
                log = join(join(path, name), partition)
                yield from (join(log, each) for each in self._fs.list(log))

    # ---------------------------------------------------------------- dropping

    def drop(self, snapshot_id: str) -> bool:
        """Remove a snapshot. Returns whether there was one.

        Raises:
            DiskError: some of it may be left; it can be dropped again.
        """
        if snapshot_id not in self._ids():
            return False
        self._make_incomplete(snapshot_id)
        for directory in self._directories:
            self._remove(directory, snapshot_id)
        return True

    def _make_incomplete(self, snapshot_id: str) -> None:
        """Remove the descriptor, so that nobody takes what is left for a whole snapshot."""
        path = self.descriptor_path(snapshot_id)
        if self._fs.exists(path):
            self._fs.unlink(path)
            self._fs.sync_directory(snapshot_path(self._metadata_directory, snapshot_id))

    def _remove(self, directory: str, snapshot_id: str) -> None:
        part = self.unfinished(directory, snapshot_id)
        path = snapshot_path(directory, snapshot_id)
        if self._fs.exists(path):
            self._fs.rename(path, part)
            self._fs.sync_directory(join(directory, SNAPSHOTS))
        if self._fs.exists(part):
            remove_tree_durably(self._fs, part)

    def remove_unfinished(self) -> None:
        """Remove what earlier runs have left of snapshots that they were making or dropping.

        A disk that fails is logged: a later start tries again.
        """
        for directory in self._directories:
            with _logged("an unfinished snapshot"):
                for name in self._names(directory):
                    if name.endswith(PART):
                        remove_tree_durably(self._fs, join(join(directory, SNAPSHOTS), name))


@any_thread
def snapshot_path(directory: str, snapshot_id: str) -> str:
    """Returns the path of a snapshot in one log directory."""
    return join(join(directory, SNAPSHOTS), snapshot_id)


def _age(snapshot: StoredSnapshot) -> tuple[bool, int]:
    its = snapshot.descriptor
    return its is None, 0 if its is None else its.created_ms


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        _log.warning("cannot remove what is left of %s: %s", what, error)

"""Snapshots as files: written beside the log, verified before use, removed when newer ones exist.

    <id>.checkpoint          complete: written, synced, renamed, and its name synced
    <id>.checkpoint.part     being written or received; a start removes it, unless a follower continues

`checkpoint_format.py` has the bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import xxhash

from replog.checkpoint_format import (
    BLOCK_BYTES,
    Footer,
    decode_header,
    encode_block,
    encode_footer,
    encode_header,
    encoded_rows,
    read_footer,
    row_bytes,
    rows_in,
)
from replog.digest import replaced, row_digest
from replog.entry import SnapshotId
from replog.machine import Row, StateMachine
from storage.files.errors import DamagedFile, StorageError
from storage.files.files import Buffer, File, FileSystem

NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
PART = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete snapshot's file."""

    snapshot: SnapshotId
    size: int
    digest: int
    checksum: bytes


def checkpoint_name(snapshot: SnapshotId) -> str:
    """Returns the name of a snapshot's file."""
    return f"{snapshot.end:020d}-{snapshot.term:010d}.checkpoint"


def received_part(names: list[str], log_end: int) -> SnapshotId | None:
    """Returns the snapshot of which these names have a part that was received, not written here.

    A copy's own snapshots end within its log, those that it needs after it.
    """
    parts = snapshots_in([name.removesuffix(PART) for name in names if name.endswith(PART)])
    return parts[-1] if parts and parts[-1].end > log_end else None


def snapshots_in(names: list[str]) -> list[SnapshotId]:
    """Returns the ids of the complete snapshots among these names, oldest first."""
    found = (NAME.fullmatch(name) for name in names)
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


class Checkpoints:
    """The snapshots in a directory. One thread at a time; a writer may run in another."""

    __slots__ = ("_directory", "_files")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory

    def path(self, snapshot: SnapshotId) -> str:
        """Returns the path of a snapshot's file."""
        return f"{self._directory}/{checkpoint_name(snapshot)}"

    def all(self) -> list[SnapshotId]:
        """Returns the complete snapshots, oldest first."""
        return snapshots_in(self._files.list(self._directory))

    def sizes(self) -> dict[SnapshotId, int]:
        """Returns the complete snapshots with the sizes of their files, oldest first."""
        return {each: self._files.size(self.path(each)) for each in self.all()}

    def verify(self, snapshot: SnapshotId) -> Checkpoint:
        """Read a snapshot and check all of it.

        Raises:
            DamagedFile: it is damaged, or it is another snapshot than its name says.
        """
        return verify_file(self._files, self.path(snapshot), snapshot)

    def restore(self, snapshot: SnapshotId, machine: StateMachine) -> Checkpoint:
        """Give a machine the state of a snapshot, after all of it was checked. Raises DamagedFile."""
        path = self.path(snapshot)
        data = bytes_of(self._files, path)
        checked = verify_bytes(data, path, snapshot)
        restore_rows(data, path, machine, checked.digest)
        return checked

    def begin(self, snapshot: SnapshotId, rows: Iterator[Row], digest: int) -> SnapshotWriter:
        """Begin to write a snapshot of these rows, whose set digest is `digest`. Raises StorageError."""
        part = self.begin_part(snapshot)
        try:
            return SnapshotWriter(part, snapshot, rows, digest)
        except StorageError:
            part.close()
            self.discard_part(snapshot)
            raise

    def begin_part(self, snapshot: SnapshotId) -> File:
        """Create the file of a snapshot that is written or received, with its temporary name."""
        path = self.path(snapshot) + PART
        self._remove(path)
        file = self._files.open(path, create=True)
        self._files.restrict(self._directory)
        return file

    def open_part(self, snapshot: SnapshotId) -> File:
        """Open what an earlier process has received of a snapshot, to append the rest."""
        return self._files.open(self.path(snapshot) + PART)

    def publish(self, snapshot: SnapshotId) -> None:
        """Give a synced file its final name, durably: from now on it is a snapshot."""
        path = self.path(snapshot)
        self._files.rename(path + PART, path)
        self._files.sync_directory(self._directory)

    def remove_before(self, snapshot: SnapshotId, pinned: Collection[SnapshotId] = ()) -> None:
        """Remove the snapshots that end before this one, except those that are pinned."""
        for older in self.all():
            if older.end < snapshot.end and older not in pinned:
                self._files.unlink(self.path(older))

    def remove_others(self, snapshot: SnapshotId) -> None:
        """Remove all snapshots except this one."""
        for other in self.all():
            if other != snapshot:
                self._files.unlink(self.path(other))

    def remove_all(self) -> None:
        """Remove all snapshots: the log has a newer one."""
        for each in self.all():
            self._files.unlink(self.path(each))

    def discard_part(self, snapshot: SnapshotId) -> None:
        """Remove what was written or received of a snapshot that was given up."""
        self._remove(self.path(snapshot) + PART)

    def _remove(self, path: str) -> None:
        if self._files.exists(path):
            self._files.unlink(path)


class Sink(Protocol):
    """Where a snapshot's bytes go: a file, or the entries of a log."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    def append(self, parts: Sequence[Buffer]) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class SnapshotWriter:
    """Writes one snapshot, some rows at a time. One thread at a time."""

    __slots__ = (
        "_digest",
        "_expected",
        "_file",
        "_hash",
        "_is_finished",
        "_rows",
        "count",
        "snapshot",
    )

    def __init__(self, file: Sink, snapshot: SnapshotId, rows: Iterator[Row], digest: int) -> None:
        # Constant after construction
        self.snapshot = snapshot
        self._file = file
        self._rows = rows
        self._expected = digest
        # State
        self._digest = 0
        self._hash = xxhash.xxh3_128()
        self._is_finished = False
        self.count = 0
        self._write(encode_header(snapshot))

    @property
    def size_bytes(self) -> int:
        """The bytes written so far."""
        return self._file.size

    def step(self) -> bool:
        """Write up to one block, or sync what was written. Returns whether rows may be left.

        The sync is here, because the owner of the state lets nothing else happen during `finish`.
        """
        block = list(self._next_block())
        if not block:
            self._file.sync()
            return False
        data = encode_block(block)
        self._write(data)
        self._count(data)
        return True

    def _count(self, block: bytes) -> None:
        """Add the rows to the digest as they were written: what happens to a row after its hash was
        taken, no digest would find."""
        for key, value in encoded_rows(block):
            self.count += 1
            self._digest = replaced(self._digest, 0, row_digest(key, value))

    def finish(self) -> Checkpoint:
        """Write the footer, sync and close the file; it still has its temporary name.

        Raises:
            StorageError: the rows are not those of the state: their digest differs from the machine's.
        """
        path = self._file.path
        if self._digest != self._expected:
            raise StorageError(
                f"{path} was not completed: the digest of its rows differs from that of the state"
                " machine, which has applied a command wrongly; restart to replay the log"
            )
        checksum = self._hash.digest()
        footer = Footer(rows=self.count, digest=self._digest, checksum=checksum)
        self._file.append([encode_footer(footer)])
        self._file.sync()
        size = self._file.size
        self.close()
        return Checkpoint(snapshot=self.snapshot, size=size, digest=self._digest, checksum=checksum)

    def stop(self) -> None:
        """Do nothing: it is completed before its process ends."""

    def close(self) -> None:
        """Close the file, complete or not."""
        self._file.close()

    def _next_block(self) -> Iterator[Row]:
        size = 0
        for key, value in self._rows:
            yield key, value
            size += row_bytes(key, value)
            if size >= BLOCK_BYTES:
                return

    def _write(self, data: bytes) -> None:
        self._file.append([data])
        self._hash.update(data)


def restore_rows(data: memoryview, path: str, machine: StateMachine, digest: int) -> None:
    """Give a machine the rows of a file that `verify_bytes` has checked.

    Raises:
        DamagedFile: they are no rows of such a machine, or have another digest than the file says.
    """
    try:
        machine.restore(rows_in(data, path))
    except (ValueError, struct.error) as error:
        raise DamagedFile(path, f"its rows are no state of this machine: {error}") from error
    if machine.digest() != digest:
        raise DamagedFile(path, "the digest of its rows differs from the one that it holds")


def verify_file(files: FileSystem, path: str, snapshot: SnapshotId) -> Checkpoint:
    """Check the file at `path`, which should be this snapshot. Raises DamagedFile."""
    return verify_bytes(bytes_of(files, path), path, snapshot)


def bytes_of(files: FileSystem, path: str) -> memoryview:
    """Returns a large file's bytes."""
    file = files.open(path)
    try:
        return memoryview(file.read_at(0, file.size))
    finally:
        file.close()


def verify_bytes(data: memoryview, path: str, snapshot: SnapshotId | None = None) -> Checkpoint:
    """Check the bytes of a snapshot's file, whichever it is if none is given. Raises DamagedFile."""
    found = decode_header(data, path)
    if snapshot is not None and found != snapshot:
        raise DamagedFile(path, "it is another snapshot than its name says")
    footer = read_footer(data, path)
    return Checkpoint(
        snapshot=found, size=len(data), digest=footer.digest, checksum=footer.checksum
    )

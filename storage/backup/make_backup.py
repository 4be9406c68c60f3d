"""Makes a backup of a snapshot: copies the files that no earlier backup has, then writes the index.

A file is not read again if the last backup has one of the same place, size and time, and its object is
in the store. The time must be older than that backup's snapshot by some seconds: the clock of a file
system is coarse, so a file that was just written may change once more without another time or size.

An interrupted backup leaves whole objects, and an index of them that counts for nothing but the next
backup, which continues there.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage.backup.backup_index import BackupIndex, FileInBackup, decode, encode
from storage.backup.backup_store import BackupStore, ObjectWriter
from storage.backup.files_to_copy import SnapshotFile
from storage.files.errors import BackupRefused, DamagedFile, FormatFromTheFuture, StorageError
from storage.files.files import FileSystem
from storage.snapshots.descriptor import SnapshotDescriptor

CHUNK_BYTES = 1 << 20
COARSE_NS = 2_000_000_000
"""The coarsest clocks of file systems tick once in two seconds."""
UNFINISHED_BYTES = 4 << 30
"""After so many bytes the index of an unfinished backup is written again."""

Progress = Callable[[int], None]
"""Receives numbers of bytes as they are copied."""

_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlan:
    """What a backup has to copy."""

    snapshot: SnapshotDescriptor
    unchanged: Sequence[FileInBackup]
    """Files whose objects are in the store."""
    changed: Sequence[SnapshotFile]

    @property
    def bytes_to_read(self) -> int:
        """The size of the files that are read."""
        return sum(file.size for file in self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBackup:
    """A backup that was made."""

    index: BackupIndex
    files_read: int
    bytes_read: int
    """The files whose objects were not known before, and their size."""


def plan_backup(
    store: BackupStore, snapshot: SnapshotDescriptor, files: Iterable[SnapshotFile]
) -> BackupPlan:
    """Compare a snapshot with the last backup. The caller holds the store's lock.

    Raises:
        BackupRefused: the store has a backup of this snapshot.
        DiskError: the store failed.
    """
    if snapshot.id in store.ids():
        raise BackupRefused(f"{store.place} has a backup of snapshot {snapshot.id} already")
    known = _known_files(store)
    unchanged, changed = [], []
    for file in files:
        sha256 = known.get((file.path, file.size, file.modified_ns))
        if sha256 is not None and store.size_of(sha256) == file.size:
            unchanged.append(_entry(file, sha256))
        else:
            changed.append(file)
    return BackupPlan(snapshot=snapshot, unchanged=unchanged, changed=changed)


def _known_files(store: BackupStore) -> Mapping[_Key, str]:
    """Returns the SHA-256 of files that need not be read again.

    Files do not come back, so the last backup has all that an earlier one would know.
    """
    known: dict[_Key, str] = {}
    ids = store.ids()
    last = [] if not ids else [(store.read_index(ids[-1]), store.index_path(ids[-1]))]
    unfinished = store.read_unfinished()
    if unfinished is not None:
        last.append((unfinished, store.place))
    for data, path in last:
        try:
            index = decode(data, path)
        except (DamagedFile, FormatFromTheFuture):
            # Then everything is read; verify reports the damage.
            continue
        sure_ns = index.snapshot.created_ms * 1_000_000 - COARSE_NS
        for file in index.files:
            if file.modified_ns < sure_ns:
                known[file.path, file.size, file.modified_ns] = file.sha256
    return known


def make_backup(
    fs: FileSystem, store: BackupStore, plan: BackupPlan, progress: Progress = lambda count: None
) -> FinishedBackup:
    """Copy what a plan says, and write the index: then there is the backup, durably.

    The caller holds the store's lock. If this raises, there is no backup, and the next one continues.

    Args:
        fs: the file system that has the snapshot.

    Raises:
        NoSpace: the store is full.
        DamagedFile: a file of the snapshot has changed.
        DiskError: the store or the snapshot's disk failed.
    """
    store.delete_leftovers()
    try:
        index = BackupIndex(snapshot=plan.snapshot, files=_copy_changed(fs, store, plan, progress))
        # The index promises its objects, also those that an interrupted backup has left.
        store.settle()
        store.write_index(index.id, encode(index))
    except BaseException:
        with contextlib.suppress(StorageError):
            store.delete_leftovers()
        raise
    store.delete_unfinished()
    return FinishedBackup(index=index, files_read=len(plan.changed), bytes_read=plan.bytes_to_read)


def _copy_changed(
    fs: FileSystem, store: BackupStore, plan: BackupPlan, progress: Progress
) -> list[FileInBackup]:
    """Copy what is not in the store. Returns all files of the backup."""
    files, unnoted = list(plan.unchanged), 0
    for file in plan.changed:
        if unnoted >= UNFINISHED_BYTES:
            _note_unfinished(store, plan.snapshot, files)
            unnoted = 0
        files.append(_entry(file, _copy(fs, store, file, progress)))
        unnoted += file.size
    return files


def _note_unfinished(
    store: BackupStore, snapshot: SnapshotDescriptor, files: Sequence[FileInBackup]
) -> None:
    store.settle()
    store.write_unfinished(encode(BackupIndex(snapshot=snapshot, files=list(files))))


def _copy(fs: FileSystem, store: BackupStore, file: SnapshotFile, progress: Progress) -> str:
    """Copy a file into an object. Returns its SHA-256."""
    if file.size <= CHUNK_BYTES:
        # Each snapshot has new small files, most of them with the bytes of earlier ones.
        data = fs.read_bytes(file.source)
        sha256 = hashlib.sha256(data).hexdigest()
        if store.size_of(sha256) == len(data) == file.size:
            progress(len(data))
            return sha256
    target = store.new_object()
    try:
        sha256 = _write(fs, target, file, progress)
    except BaseException:
        target.abandon()
        raise
    target.finish(sha256)
    return sha256


def _write(fs: FileSystem, target: ObjectWriter, file: SnapshotFile, progress: Progress) -> str:
    digest, position = hashlib.sha256(), 0
    source = fs.open(file.source)
    try:
        while data := source.read_at(position, CHUNK_BYTES):
            digest.update(data)
            target.append([data])
            position += len(data)
            progress(len(data))
    finally:
        source.close()
    if position != file.size:
        text = f"it had {file.size} bytes, now {position}: a file of a snapshot never changes"
        raise DamagedFile(file.source, text)
    return digest.hexdigest()


def _entry(file: SnapshotFile, sha256: str) -> FileInBackup:
    return FileInBackup(path=file.path, size=file.size, sha256=sha256, modified_ns=file.modified_ns)

"""Backups in a directory.

    kompakt-backup.json           whose backups these are:
                                  {"format": 1, "cluster_id": "...", "node_id": ...}
    objects/ab/<SHA-256>          the bytes of files; the name begins with ab
    backups/<id>.json             the indexes (`backup_index.py`)
    unfinished.json               the index of what an interrupted backup has copied
    staging/<n>                   objects that are being written
    .lock                         locked by the one writer

An object has its name only once its bytes are durable: many of them are synced at once, then renamed. So
an object that is there is whole, except for damage by the disk. Only the user who made the directory may
access it, because backups have secrets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from storage.backup.backup_store import ObjectReader, ObjectWriter, StoredObject
from storage.files.errors import (
    BackupRefused,
    DamagedFile,
    DirectoryLocked,
    FormatFromTheFuture,
    MissingFile,
)
from storage.files.files import Buffer, File, FileSystem, Lock, unlink_if_there
from storage.files.paths import LOCK, join
from storage.log.directory_start import make_durably

FORMAT = 1
LABEL = "kompakt-backup.json"
OBJECTS = "objects"
BACKUPS = "backups"
STAGING = "staging"
UNFINISHED = "unfinished.json"
JSON = ".json"
TEMPORARY = ".tmp"
NEW = {LABEL + TEMPORARY, "lost+found"}
"""Names in a directory that is not a repository yet."""

PREFIX = re.compile(r"[0-9a-f]{2}")
OBJECT = re.compile(r"[0-9a-f]{64}")

SETTLE_OBJECTS_MAX = 1_000
SETTLE_BYTES_MAX = 1 << 30
"""So many objects or bytes are made durable with one sync."""
WRITE_BACK_BYTES = 8 << 20


class Label(Struct, frozen=True, kw_only=True):
    """Whose backups are in a repository."""

    format: Annotated[int, Meta(ge=1)] = FORMAT
    cluster_id: str
    node_id: int


class LocalBackupStore:
    """A repository in a directory. One thread uses it."""

    __slots__ = ("_finished", "_finished_bytes", "_fs", "_numbers", "_place")

    def __init__(self, fs: FileSystem, place: str) -> None:
        """`open_repository` and `make_repository` check the directory first."""
        # Constant after construction
        self._fs = fs
        self._place = place
        # State: finished objects that are still in the staging directory.
        self._finished: dict[str, File] = {}
        self._finished_bytes = 0
        self._numbers = itertools.count()

    @property
    def place(self) -> str:
        return self._place

    def lock(self) -> Lock:
        try:
            return self._fs.lock(self._path(LOCK))
        except DirectoryLocked as error:
            text = f"another backup or prune is writing to {self._place}: wait until it is done"
            raise BackupRefused(text) from error

    # ---------------------------------------------------------------- objects

    def size_of(self, sha256: str) -> int | None:
        staged = self._finished.get(sha256)
        if staged is not None:
            return staged.size
        try:
            return self._fs.size(self._object_path(sha256))
        except MissingFile:
            return None

    def new_object(self) -> ObjectWriter:
        staging = self._path(STAGING)
        self._fs.make_directory(staging)
        path = join(staging, str(next(self._numbers)))
        unlink_if_there(self._fs, path)
        return _StagedObject(self, self._fs.open(path, create=True))

    def take(self, staged: File, sha256: str) -> None:
        """Take over a finished object."""
        # One of another size was damaged by the disk, and is replaced.
        if self.size_of(sha256) == staged.size:
            self.drop(staged)
            return
        # Closed, because there may be very many of them; the sync of the whole disk includes it.
        staged.close()
        self._finished[sha256] = staged
        self._finished_bytes += staged.size
        is_many = len(self._finished) >= SETTLE_OBJECTS_MAX
        if is_many or self._finished_bytes >= SETTLE_BYTES_MAX:
            self.settle()

    def drop(self, staged: File) -> None:
        """Remove an object that is not needed."""
        staged.close()
        unlink_if_there(self._fs, staged.path)

    def settle(self) -> None:
        # First the bytes, then the names: an object that has its name is whole.
        self._fs.sync_all(self._place)
        for sha256, staged in self._finished.items():
            target = self._object_path(sha256)
            self._fs.make_directory(target.rpartition("/")[0])
            self._fs.rename(staged.path, target)
        self._finished.clear()
        self._finished_bytes = 0
        self._fs.sync_all(self._place)

    def open_object(self, sha256: str) -> ObjectReader:
        return self._fs.open(self._object_path(sha256))

    def objects(self) -> Iterator[StoredObject]:
        folders = self._path(OBJECTS)
        for prefix in filter(PREFIX.fullmatch, self._names(folders)):
            folder = join(folders, prefix)
            # Something else, such as what a network file system leaves, is not ours to delete.
            for name in filter(OBJECT.fullmatch, self._fs.list(folder)):
                yield StoredObject(name, self._fs.size(join(folder, name)))

    def delete_objects(self, names: Iterable[str]) -> None:
        for name in names:
            unlink_if_there(self._fs, self._object_path(name))

    def delete_leftovers(self) -> None:
        self._finished.clear()
        self._finished_bytes = 0
        self._fs.remove_tree(self._path(STAGING))
        for folder in (self._place, self._path(BACKUPS)):
            for name in self._names(folder):
                if name.endswith(TEMPORARY):
                    unlink_if_there(self._fs, join(folder, name))

    # ---------------------------------------------------------------- indexes

    def ids(self) -> list[str]:
        names = self._names(self._path(BACKUPS))
        return [name.removesuffix(JSON) for name in names if name.endswith(JSON)]

    def index_path(self, backup_id: str) -> str:
        return join(self._path(BACKUPS), backup_id + JSON)

    def read_index(self, backup_id: str) -> bytes:
        return self._fs.read_bytes(self.index_path(backup_id))

    def write_index(self, backup_id: str, data: bytes) -> None:
        make_durably(self._fs, self._path(BACKUPS))
        self._fs.replace_durably(self.index_path(backup_id), data, secret=True)

    def delete_index(self, backup_id: str) -> None:
        self._fs.unlink(self.index_path(backup_id))
        self._fs.sync_directory(self._path(BACKUPS))

    def read_unfinished(self) -> bytes | None:
        try:
            return self._fs.read_bytes(self._path(UNFINISHED))
        except MissingFile:
            return None

    def write_unfinished(self, data: bytes) -> None:
        self._fs.replace_durably(self._path(UNFINISHED), data, secret=True)

    def delete_unfinished(self) -> None:
        unlink_if_there(self._fs, self._path(UNFINISHED))

    def _path(self, name: str) -> str:
        return join(self._place, name)

    def _object_path(self, sha256: str) -> str:
        return join(join(self._path(OBJECTS), sha256[:2]), sha256)

    def _names(self, path: str) -> list[str]:
        try:
            return self._fs.list(path)
        except MissingFile:
            return []


class _StagedObject:
    """An object in the staging directory."""

    __slots__ = ("_file", "_store", "_written_back")

    def __init__(self, store: LocalBackupStore, file: File) -> None:
        self._store = store
        self._file = file
        self._written_back = 0

    def append(self, parts: Sequence[Buffer]) -> None:
        self._file.append(parts)
        waiting = self._file.size - self._written_back
        if waiting >= WRITE_BACK_BYTES:
            # Otherwise one sync would have to write all of it.
            self._file.begin_write_back(self._written_back, waiting)
            self._written_back = self._file.size

    def finish(self, sha256: str) -> None:
        self._store.take(self._file, sha256)

    def abandon(self) -> None:
        self._store.drop(self._file)


def open_repository(fs: FileSystem, place: str) -> LocalBackupStore:
    """Returns the store in a directory, an absolute path.

    Raises:
        BackupRefused: there is no repository.
        DamagedFile, FormatFromTheFuture: it cannot be read.
        DiskError: the disk failed.
    """
    if read_label(fs, place) is None:
        raise BackupRefused(f"{place} has no backups: {join(place, LABEL)} does not exist")
    return LocalBackupStore(fs, place)


def make_repository(fs: FileSystem, place: str, label: Label) -> LocalBackupStore:
    """Returns the store in a directory, which becomes a repository if it is new or empty.

    Raises:
        BackupRefused: there is something else in it, or backups of another broker.
        DamagedFile, FormatFromTheFuture: it cannot be read.
        DiskError: the disk failed.
    """
    found = read_label(fs, place)
    if found is None:
        _make(fs, place, label)
    elif (found.cluster_id, found.node_id) != (label.cluster_id, label.node_id):
        raise BackupRefused(
            f"{place} has the backups of node {found.node_id} of cluster {found.cluster_id}, and this is"
            f" node {label.node_id} of cluster {label.cluster_id}: choose another directory"
        )
    return LocalBackupStore(fs, place)


def _make(fs: FileSystem, place: str, label: Label) -> None:
    make_durably(fs, place)
    others = [name for name in fs.list(place) if name not in NEW]
    if others:
        text = (
            f"{place} is not empty and has no backups: it has {others[0]}; choose a new directory"
        )
        raise BackupRefused(text)
    fs.restrict(place)
    fs.replace_durably(join(place, LABEL), msgspec.json.encode(label))


def read_label(fs: FileSystem, place: str) -> Label | None:
    """Returns whose backups are in a directory; None if it is no repository.

    Raises:
        DamagedFile, FormatFromTheFuture: the label cannot be read.
        DiskError: the disk failed.
    """
    path = join(place, LABEL)
    try:
        label = msgspec.json.decode(fs.read_bytes(path), type=Label)
    except MissingFile:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedFile(path, str(error)) from error
    if label.format > FORMAT:
        raise FormatFromTheFuture(path, label.format, FORMAT)
    return label

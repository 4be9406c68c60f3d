"""Reads the indexes of the backups in a store."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from storage.backup.backup_index import BackupIndex, decode
from storage.backup.backup_store import BackupStore
from storage.files.errors import (
    BackupRefused,
    DamagedFile,
    FormatFromTheFuture,
    MissingFile,
)


@dataclass(frozen=True, slots=True)
class UnreadableIndex:
    """An index that cannot be read."""

    id: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups in a store."""

    readable: tuple[BackupIndex, ...]
    """Oldest first."""
    unreadable: tuple[UnreadableIndex, ...]


def read_backups(store: BackupStore) -> Backups:
    """Returns all backups. One that is deleted meanwhile may be left out. Raises DiskError."""
    readable, unreadable = [], []
    for backup_id in store.ids():
        try:
            with contextlib.suppress(MissingFile):
                readable.append(_read(store, backup_id))
        except (DamagedFile, FormatFromTheFuture) as error:
            path = store.index_path(backup_id)
            unreadable.append(UnreadableIndex(backup_id, path, str(error)))
    readable.sort(key=lambda each: (each.snapshot.created_ms, each.id))
    return Backups(tuple(readable), tuple(unreadable))


def find_backup(store: BackupStore, backup_id: str | None) -> BackupIndex:
    """Returns the backup with an id, or the newest one.

    Raises:
        BackupRefused: there is none. Or an index is damaged, so that the newest one is not known.
        DamagedFile, FormatFromTheFuture: its index cannot be read.
        DiskError: the store failed.
    """
    if backup_id is not None:
        if backup_id not in store.ids():
            raise BackupRefused(f"{store.place} has no backup {backup_id}: see kompakt backup list")
        return _read(store, backup_id)
    backups = read_backups(store)
    if backups.unreadable:
        raise BackupRefused(
            f"{backups.unreadable[0].reason}; it may be the newest backup, so choose one with --backup"
        )
    if not backups.readable:
        raise BackupRefused(f"{store.place} has no backup")
    return backups.readable[-1]


def _read(store: BackupStore, backup_id: str) -> BackupIndex:
    path = store.index_path(backup_id)
    index = decode(store.read_index(backup_id), path)
    if index.id != backup_id:
        raise DamagedFile(path, f"it is the index of backup {index.id}")
    return index

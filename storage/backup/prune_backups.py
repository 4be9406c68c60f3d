"""Deletes old backups, and the objects that no other backup needs.

First the indexes go, durably, then the objects: a crash in between leaves objects that the next run
deletes. The newest backup always stays. If an index cannot be read, nothing is deleted: it is not known
which objects it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.backup.backup_index import BackupIndex
from storage.backup.backup_store import BackupStore, StoredObject
from storage.backup.read_backups import read_backups
from storage.files.errors import BackupRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Which backups stay: one that either rule keeps."""

    count: int | None = None
    """The newest ones, so many; at least 1."""
    for_ms: int | None = None
    """Those that are not older than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What is deleted."""

    kept: Sequence[BackupIndex]
    deleted: Sequence[BackupIndex]
    objects: Sequence[StoredObject]
    """Those that only deleted and interrupted backups have needed."""

    @property
    def bytes(self) -> int:
        """How much space that frees."""
        return sum(each.size for each in self.objects)


def kept_backups(
    backups: Sequence[BackupIndex], keeping: Keeping, *, now_ms: int
) -> list[BackupIndex]:
    """Returns the backups that stay, oldest first.

    Args:
        backups: all of them, oldest first.
    """
    newest = max(keeping.count or 0, 1)
    first_ms = now_ms if keeping.for_ms is None else now_ms - keeping.for_ms
    return [
        each
        for number, each in enumerate(backups)
        if number >= len(backups) - newest
        or (keeping.for_ms is not None and each.snapshot.created_ms >= first_ms)
    ]


def plan_prune(store: BackupStore, keeping: Keeping, *, now_ms: int) -> PrunePlan:
    """Decide what is deleted. The caller of `prune` holds the store's lock from here on.

    Raises:
        BackupRefused: an index cannot be read.
        DiskError: the store failed.
    """
    found = read_backups(store)
    if found.unreadable:
        raise BackupRefused(
            f"{found.unreadable[0].reason}; nothing is pruned, because it is not known which files that"
            " backup needs: remove its index if you give it up"
        )
    kept = kept_backups(found.readable, keeping, now_ms=now_ms)
    kept_ids = {index.id for index in kept}
    needed = {file.sha256 for index in kept for file in index.files}
    return PrunePlan(
        kept=kept,
        deleted=[each for each in found.readable if each.id not in kept_ids],
        objects=[each for each in store.objects() if each.sha256 not in needed],
    )


def prune(store: BackupStore, plan: PrunePlan) -> None:
    """Delete what a plan says. Raises DiskError: the next run continues."""
    for index in plan.deleted:
        store.delete_index(index.id)
    store.delete_unfinished()
    store.delete_objects(each.sha256 for each in plan.objects)
    store.delete_leftovers()

"""Backups of a `SnapshotWorld` in a repository: make, verify, restore, and what is wrong with them."""

from __future__ import annotations

from storage.backup.backup_store import BackupStore
from storage.backup.files_to_copy import files_of_snapshot, read_descriptor
from storage.backup.local_store import Label, LocalBackupStore, make_repository, open_repository
from storage.backup.make_backup import FinishedBackup, make_backup, plan_backup
from storage.backup.read_backups import find_backup, read_backups
from storage.backup.restore_files import (
    RestorePlan,
    check_target,
    finish_restore,
    plan_restore,
    restore_logs,
)
from storage.backup.verify_backups import Problem, verify_backups
from storage.files.files import FileSystem
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_world import CLUSTER_ID, NODE_ID

PLACE = "/backup"
TARGET = "/restored"
LABEL = Label(cluster_id=CLUSTER_ID, node_id=NODE_ID)


def made(source: FileSystem, path: str, disk: FileSystem, place: str = PLACE) -> FinishedBackup:
    """Back up the snapshot with the snapshot.json at `path` into a repository on `disk`."""
    descriptor = read_descriptor(source, path)
    store = make_repository(disk, place, LABEL)
    lock = store.lock()
    try:
        plan = plan_backup(store, descriptor, files_of_snapshot(source, descriptor))
        return make_backup(source, store, plan)
    finally:
        lock.release()


def opened(disk: FileSystem, place: str = PLACE) -> LocalBackupStore:
    return open_repository(disk, place)


def problems(store: BackupStore, *, with_records: bool = False) -> list[Problem]:
    return verify_backups(store, read_backups(store), with_records=with_records).problems


def restored(
    store: BackupStore, backup_id: str, disk: FileSystem, topics: list[str] | None = None
) -> RestorePlan:
    """Restore all of a backup except the metadata stores."""
    plan = plan_restore(find_backup(store, backup_id), TARGET, topics, always=())
    check_target(disk, plan)
    restore_logs(disk, store, plan)
    finish_restore(disk, store, plan)
    return plan


def restored_contents(
    store: BackupStore, backup_id: str, topics: list[str] | None = None
) -> dict[str, bytes]:
    """Returns the bytes of each restored file of a backup, by its path in the backup."""
    disk = MemoryFileSystem()
    plan = restored(store, backup_id, disk, topics)
    return {file.path: disk.read_bytes(plan.path_of(file)) for file in plan.files}

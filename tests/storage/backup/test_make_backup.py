"""Backups of snapshots: what is read again, what a failure leaves, and who may write."""

from __future__ import annotations

import errno
from random import Random

import pytest

from storage.backup import local_store, make_backup
from storage.backup.backup_index import log_path
from storage.backup.files_to_copy import SnapshotFile, files_of_snapshot
from storage.backup.local_store import Label, make_repository
from storage.backup.make_backup import COARSE_NS
from storage.files.errors import BackupRefused, DamagedFile, DiskError, NoSpace
from storage.files.paths import HASH_KEY, META_PROPERTIES, START_COUNTER
from storage.snapshots.descriptor import decode, encode
from tests.harness.backups import (
    LABEL,
    PLACE,
    made,
    opened,
    problems,
    restored_contents,
)
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_world import SnapshotWorld


@pytest.fixture
def world() -> SnapshotWorld:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    world.create_topic("orders", 3)
    for _ in range(20):
        world.change()
    return world


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


def object_paths(disk: MemoryFileSystem) -> list[str]:
    store = opened(disk)
    return [f"{PLACE}/objects/{name[:2]}/{name}" for name, _ in store.objects()]


def files_in(world: SnapshotWorld, path: str) -> list[SnapshotFile]:
    return files_of_snapshot(world.fs, decode(world.fs.read_bytes(path), path))


def test_a_backup_has_every_file_of_the_snapshot(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    finished = made(world.fs, world.snapshot(), disk)

    (contents,) = world.contents.values()
    assert {file.path: file.size for file in finished.index.files} == {
        path: len(data) for path, data in contents.items()
    }
    assert finished.files_read == len(contents)
    assert finished.bytes_read == sum(map(len, contents.values()))
    assert problems(opened(disk)) == []


def test_only_files_that_have_changed_are_read_again(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    made(world.fs, world.snapshot(), disk)
    log = world.logs[0]
    log.append(b"new")
    world._write(log)

    finished = made(world.fs, world.snapshot(), disk)

    # Its last segment and its manifest, and the files at the top, which this harness copies.
    assert finished.files_read == 2 + 2 * len((META_PROPERTIES, HASH_KEY, START_COUNTER))
    assert problems(opened(disk)) == []


def test_a_file_that_changed_just_before_the_last_snapshot_is_read_again(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    """The clock of a file system is coarse: it may have changed once more at the same time."""
    path = world.snapshot()
    descriptor = decode(world.fs.read_bytes(path), path)
    # The memory's clock counts ns from 0, so everything is older than COARSE_NS before this moment.
    early = COARSE_NS // 1_000_000
    fields = {name: getattr(descriptor, name) for name in descriptor.__struct_fields__}
    world.fs.write_bytes(path, encode(type(descriptor)(**fields | {"created_ms": early})))
    first = made(world.fs, path, disk)

    second = made(world.fs, world.snapshot(), disk)

    assert second.files_read == first.files_read
    assert made(world.fs, world.snapshot(), disk).files_read < first.files_read


def test_equal_files_are_stored_once(world: SnapshotWorld, disk: MemoryFileSystem) -> None:
    made(world.fs, world.snapshot(), disk)

    (contents,) = world.contents.values()
    assert len(object_paths(disk)) == len(set(contents.values())) < len(contents)


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_an_object_that_is_gone_or_cut_is_copied_again(
    world: SnapshotWorld, disk: MemoryFileSystem, damage: str
) -> None:
    made(world.fs, world.snapshot(), disk)
    path = max(object_paths(disk), key=disk.size)
    if damage == "removed":
        disk.unlink(path)
    else:
        disk.write_bytes(path, disk.read_bytes(path)[:-1])
    assert problems(opened(disk)) != []

    made(world.fs, world.snapshot(), disk)

    assert problems(opened(disk)) == []


@pytest.mark.parametrize("is_at_its_index", [False, True])
def test_a_full_disk_leaves_no_half_of_a_backup(
    world: SnapshotWorld, disk: MemoryFileSystem, *, is_at_its_index: bool
) -> None:
    first = made(world.fs, world.snapshot(), disk).index.id
    for _ in range(20):
        world.change()
    path = world.snapshot()
    if is_at_its_index:
        disk.faults.fail("write", errno.ENOSPC, path=".json")
    else:
        disk.faults.space = 3000

    with pytest.raises(NoSpace):
        made(world.fs, path, disk)

    assert opened(disk).ids() == [first]
    assert not disk.exists(f"{PLACE}/staging")
    assert disk.list(f"{PLACE}/backups") == [f"{first}.json"]
    assert problems(opened(disk)) == []
    disk.faults.heal()
    second = made(world.fs, path, disk).index.id
    assert restored_contents(opened(disk), second) == world.contents[second]


def test_an_interrupted_backup_is_continued(
    world: SnapshotWorld, disk: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_backup, "UNFINISHED_BYTES", 2000)
    path = world.snapshot()
    read = 0

    def progress(count: int) -> None:
        nonlocal read
        read += count
        if read > 10_000:
            raise KeyboardInterrupt

    descriptor = decode(world.fs.read_bytes(path), path)
    store = make_repository(disk, PLACE, LABEL)
    files = files_in(world, path)
    with pytest.raises(KeyboardInterrupt):
        make_backup.make_backup(
            world.fs, store, make_backup.plan_backup(store, descriptor, files), progress
        )
    assert store.ids() == []

    finished = made(world.fs, path, disk)

    total = sum(file.size for file in finished.index.files)
    assert total - 10_000 <= finished.bytes_read < total - 5000
    assert problems(opened(disk)) == []
    assert not disk.exists(f"{PLACE}/unfinished.json")


def test_a_snapshot_is_backed_up_once(world: SnapshotWorld, disk: MemoryFileSystem) -> None:
    path = world.snapshot()
    made(world.fs, path, disk)

    with pytest.raises(BackupRefused, match="already"):
        made(world.fs, path, disk)


def test_one_writer_at_a_time(world: SnapshotWorld, disk: MemoryFileSystem) -> None:
    made(world.fs, world.snapshot(), disk)
    lock = opened(disk).lock()

    with pytest.raises(BackupRefused, match="another backup or prune"):
        made(world.fs, world.snapshot(), disk)

    lock.release()
    made(world.fs, world.snapshot(), disk)


def test_a_file_of_the_snapshot_that_changes_meanwhile_ends_the_backup(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    path = world.snapshot()
    files = files_in(world, path)
    longest = max(files, key=lambda each: each.size)
    descriptor = decode(world.fs.read_bytes(path), path)
    store = make_repository(disk, PLACE, LABEL)
    world.fs.open(longest.source).append([b"more"])

    with pytest.raises(DamagedFile, match="never changes"):
        make_backup.make_backup(world.fs, store, make_backup.plan_backup(store, descriptor, files))

    assert store.ids() == []


def test_a_snapshot_without_one_of_its_logs_is_refused(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    path = world.snapshot()
    descriptor = decode(world.fs.read_bytes(path), path)
    topic = descriptor.topics[0]
    partition = topic.partitions[0]
    place = log_path(topic, partition).partition("/")[2]
    directory = world.directories[partition.directory]
    world.fs.remove_tree(f"{directory}/snapshots/{descriptor.id}/{place}")

    with pytest.raises(DamagedFile, match="lacks this log"):
        made(world.fs, path, disk)


def test_a_descriptor_elsewhere_than_in_its_snapshot_is_refused(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    path = world.snapshot()
    world.fs.write_bytes("/disk1/copy.json", world.fs.read_bytes(path))

    with pytest.raises(BackupRefused, match="cannot be read from another place"):
        made(world.fs, "/disk1/copy.json", disk)


def test_a_damaged_last_index_lets_everything_be_read(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    first = made(world.fs, world.snapshot(), disk)
    disk.write_bytes(f"{PLACE}/backups/{first.index.id}.json", b"{}")

    second = made(world.fs, world.snapshot(), disk)

    assert second.files_read == first.files_read


@pytest.mark.parametrize("settle", [1, 3, 1000])
def test_any_number_of_objects_may_become_durable_at_once(
    world: SnapshotWorld,
    disk: MemoryFileSystem,
    monkeypatch: pytest.MonkeyPatch,
    settle: int,
) -> None:
    monkeypatch.setattr(local_store, "SETTLE_OBJECTS_MAX", settle)

    finished = made(world.fs, world.snapshot(), disk)

    assert problems(opened(disk)) == []
    assert restored_contents(opened(disk), finished.index.id) == world.contents[finished.index.id]


def test_a_directory_with_something_else_is_refused(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    disk.make_directory(PLACE)
    disk.write_bytes(f"{PLACE}/letter", b"dear")

    with pytest.raises(BackupRefused, match="not empty"):
        made(world.fs, world.snapshot(), disk)

    assert disk.list(PLACE) == ["letter"]


def test_the_backups_of_another_broker_are_left_alone(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    make_repository(disk, PLACE, Label(cluster_id="D" * 22, node_id=1))

    with pytest.raises(BackupRefused, match="node 1 of cluster D"):
        made(world.fs, world.snapshot(), disk)

    assert opened(disk).ids() == []


def test_a_failed_sync_is_no_backup(world: SnapshotWorld, disk: MemoryFileSystem) -> None:
    made(world.fs, world.snapshot(), disk)
    disk.faults.fail("sync all of", errno.EIO)

    with pytest.raises(DiskError):
        made(world.fs, world.snapshot(), disk)

    assert len(opened(disk).ids()) == 1

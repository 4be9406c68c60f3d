"""Verification of backups: every kind of damage is found, and names the backups that need the file."""

from __future__ import annotations

from random import Random

import pytest

from storage.backup.backup_files import BackupFiles
from storage.backup.prune_backups import Keeping, plan_prune, prune
from storage.backup.read_backups import find_backup, read_backups
from storage.backup.verify_backups import bytes_to_read, verify_backups
from storage.files.errors import DiskError
from storage.files.files import FileSystem
from storage.files.paths import LOG, MANIFEST, topic_directory
from storage.snapshots.descriptor import decode, encode
from tests.harness.backups import PLACE, made, opened, problems
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_by_hand import snapshot_by_hand
from tests.harness.snapshot_world import SnapshotWorld
from tests.storage.log.test_directory import TOPIC_ID, append, create_log, stop
from tests.storage.log.test_directory import opened as opened_directory

ORDERS = topic_directory("orders", TOPIC_ID)


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


def backed_up(disk: MemoryFileSystem, count: int = 1) -> SnapshotWorld:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    world.create_topic("orders")
    for _ in range(count):
        for _ in range(10):
            world.change()
        made(world.fs, world.snapshot(), disk)
    return world


def all_files(disk: FileSystem, path: str) -> list[str]:
    try:
        names = disk.list(path)
    except DiskError:
        return [path]
    return [found for name in names for found in all_files(disk, f"{path}/{name}")]


def real_backup(disk: MemoryFileSystem) -> MemoryFileSystem:
    """A backup of a real log of 40 batches in several segments. Returns the broker's disk."""
    source = MemoryFileSystem()
    directory = opened_directory(source)
    append(create_log(directory), 40)
    stop(directory)
    made(source, snapshot_by_hand(source, ["/data"], "s1", created_ms=0), disk)
    return source


def test_a_flipped_bit_in_any_file_of_the_repository_is_found(disk: MemoryFileSystem) -> None:
    backed_up(disk, 2)
    random = Random(0)
    paths = [path for path in all_files(disk, PLACE) if disk.size(path)]
    checked = 0
    for path in paths:
        if path.endswith((".lock", "kompakt-backup.json")):
            continue
        before = disk.read_bytes(path)
        damaged = bytearray(before)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        disk.write_bytes(path, bytes(damaged))

        (problem,) = problems(opened(disk))

        assert path.rpartition("/")[2].removesuffix(".json") in f"{problem.backups} {problem.text}"
        disk.write_bytes(path, before)
        checked += 1
    assert checked > 10
    assert problems(opened(disk)) == []


def test_a_missing_object_and_one_that_is_cut_name_the_backups_that_need_them(
    disk: MemoryFileSystem,
) -> None:
    backed_up(disk, 2)
    store = opened(disk)
    first, second = read_backups(store).readable
    shared = {file.sha256 for file in first.files} & {file.sha256 for file in second.files}
    newer = {file.sha256 for file in second.files} - shared
    one, other = min(shared), min(newer)
    disk.unlink(f"{PLACE}/objects/{one[:2]}/{one}")
    path = f"{PLACE}/objects/{other[:2]}/{other}"
    size = disk.size(path)
    disk.write_bytes(path, disk.read_bytes(path)[:-1])

    found = {each.backups: each.text for each in problems(store)}

    assert found == {
        (first.id, second.id): f"object {one} is missing",
        (second.id,): f"object {other} has {size - 1} bytes instead of {size}",
    }


def test_every_object_is_read_once_and_progress_counts_it(disk: MemoryFileSystem) -> None:
    backed_up(disk, 3)
    store = opened(disk)
    backups = read_backups(store)
    read: list[int] = []

    report = verify_backups(store, backups, progress=read.append)

    assert (report.backups, report.problems) == (3, [])
    assert report.objects == sum(1 for _ in store.objects())
    total = sum(size for _, size in store.objects())
    assert report.bytes == sum(read) == total == bytes_to_read(backups.readable, with_records=False)


def test_a_manifest_that_lists_what_the_backup_lacks_is_found(disk: MemoryFileSystem) -> None:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    world.create_topic("orders", 1)
    world.logs[0].append(b"abc")
    world._write(world.logs[0])
    path = world.snapshot()
    folder = f"/disk1/data/snapshots/{path.split('/')[-2]}/{world.logs[0].place}"
    (name,) = [each for each in world.fs.list(folder) if each.endswith(LOG)]
    world.fs.unlink(f"{folder}/{name}")
    made(world.fs, path, disk)

    (problem,) = problems(opened(disk))

    assert problem.text == f"it lists {name}, which the backup lacks"
    assert problem.path.endswith(f"/0/{MANIFEST}")


def test_a_manifest_of_other_offsets_than_the_snapshot_says_is_found(
    disk: MemoryFileSystem,
) -> None:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    world.create_topic("orders", 1)
    path = world.snapshot()
    descriptor = decode(world.fs.read_bytes(path), path)
    text = encode(descriptor).replace(b'"end_offset":0', b'"end_offset":9')
    world.fs.write_bytes(path, text)
    made(world.fs, path, disk)

    (problem,) = problems(opened(disk))

    assert problem.text == "it has the offsets [0, 0), and the snapshot [0, 9)"


def test_the_records_of_a_backup_are_verified_like_those_of_a_data_directory(
    disk: MemoryFileSystem,
) -> None:
    real_backup(disk)
    store = opened(disk)
    backups = read_backups(store)
    read: list[int] = []

    report = verify_backups(store, backups, with_records=True, progress=read.append)

    assert (report.problems, report.records, report.logs) == ([], 40, 1)
    assert sum(read) == bytes_to_read(backups.readable, with_records=True)


def test_a_batch_that_was_damaged_before_the_backup_is_found_with_records(
    disk: MemoryFileSystem,
) -> None:
    source = MemoryFileSystem()
    directory = opened_directory(source)
    append(create_log(directory), 40)
    stop(directory)
    name = next(name for name in source.list(f"/data/{ORDERS}/0") if name.endswith(LOG))
    source.overwrite(f"/data/{ORDERS}/0/{name}", 80, b"\xff\xff")
    made(source, snapshot_by_hand(source, ["/data"], "s1", created_ms=0), disk)
    store = opened(disk)

    assert problems(store) == []
    found = problems(store, with_records=True)
    assert any(each.path.endswith(f"{ORDERS}/0/{name}") for each in found)


def test_a_backup_that_is_pruned_meanwhile_does_not_count(disk: MemoryFileSystem) -> None:
    backed_up(disk, 2)
    store = opened(disk)
    backups = read_backups(store)
    prune(store, plan_prune(store, Keeping(count=1), now_ms=0))

    report = verify_backups(store, backups)

    assert report.problems == []


def test_the_files_of_a_backup_are_those_of_a_directory(disk: MemoryFileSystem) -> None:
    source = real_backup(disk)
    store = opened(disk)
    index = find_backup(store, None)
    (directory,) = index.snapshot.directories
    files = BackupFiles(store, index)
    folder = f"/{directory.id}/{ORDERS}/0"

    assert files.list("/") == [directory.id]
    assert ORDERS in files.list(f"/{directory.id}")
    assert files.list(folder) == source.list(f"/data/{ORDERS}/0")
    for name in files.list(folder):
        data = source.read_bytes(f"/data/{ORDERS}/0/{name}")
        assert files.read_bytes(f"{folder}/{name}") == data
        assert files.size(f"{folder}/{name}") == len(data)
        assert files.open(f"{folder}/{name}").read_at(3, 5) == data[3:8]
    assert not files.exists(f"{folder}/other")

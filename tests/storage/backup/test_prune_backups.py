"""Which backups stay, and what goes with the others."""

from __future__ import annotations

from random import Random

import pytest

from storage.backup.prune_backups import Keeping, kept_backups, plan_prune, prune
from storage.backup.read_backups import find_backup, read_backups
from storage.files.errors import BackupRefused
from tests.harness.backups import PLACE, made, opened, problems, restored_contents
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_world import CREATED_MS, SnapshotWorld

SECOND = 1000


@pytest.fixture
def world() -> SnapshotWorld:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    world.create_topic("orders")
    return world


@pytest.fixture
def disk(world: SnapshotWorld) -> MemoryFileSystem:
    """Four backups, a second after the other."""
    disk = MemoryFileSystem()
    for _ in range(4):
        for _ in range(8):
            world.change()
        made(world.fs, world.snapshot(), disk)
    return disk


@pytest.mark.parametrize(
    ("keeping", "count"),
    [
        pytest.param(Keeping(count=1), 1, id="the_newest"),
        pytest.param(Keeping(count=3), 3, id="three"),
        pytest.param(Keeping(count=9), 4, id="more_than_there_are"),
        pytest.param(Keeping(for_ms=1500), 2, id="those_of_a_time"),
        pytest.param(Keeping(for_ms=1000), 2, id="just_as_old_as_the_limit"),
        pytest.param(Keeping(count=1, for_ms=2500), 3, id="either"),
        pytest.param(Keeping(count=4, for_ms=0), 4, id="either_the_other_way"),
        pytest.param(Keeping(for_ms=0), 1, id="the_newest_always"),
    ],
)
def test_a_backup_stays_if_one_rule_keeps_it(
    disk: MemoryFileSystem, keeping: Keeping, count: int
) -> None:
    backups = read_backups(opened(disk)).readable

    kept = kept_backups(backups, keeping, now_ms=CREATED_MS + 4 * SECOND)

    assert kept == list(backups[-count:])


def test_the_newest_backup_stays_however_old_it_is(disk: MemoryFileSystem) -> None:
    backups = read_backups(opened(disk)).readable

    assert kept_backups(backups, Keeping(for_ms=1), now_ms=2 * CREATED_MS) == [backups[-1]]


def test_objects_go_that_no_backup_needs(world: SnapshotWorld, disk: MemoryFileSystem) -> None:
    store = opened(disk)
    before = {each.sha256 for each in store.objects()}
    newest = find_backup(store, None)
    plan = plan_prune(store, Keeping(count=1), now_ms=CREATED_MS)

    prune(store, plan)

    left = {each.sha256 for each in store.objects()}
    assert left == {file.sha256 for file in newest.files}
    assert {each.sha256 for each in plan.objects} == before - left
    assert len(plan.deleted) == 3
    assert plan.bytes == sum(each.size for each in plan.objects) > 0
    assert problems(store) == []
    assert restored_contents(store, newest.id) == world.contents[newest.id]


def test_a_plan_alone_deletes_nothing(disk: MemoryFileSystem) -> None:
    operations = disk.operations

    plan_prune(opened(disk), Keeping(count=1), now_ms=CREATED_MS)

    assert disk.operations == operations


def test_an_index_that_cannot_be_read_keeps_everything(disk: MemoryFileSystem) -> None:
    store = opened(disk)
    first = store.ids()[0]
    disk.write_bytes(f"{PLACE}/backups/{first}.json", b"{}")

    with pytest.raises(BackupRefused, match=f"{first}.json is damaged.*nothing is pruned"):
        plan_prune(store, Keeping(count=1), now_ms=CREATED_MS)


def test_what_an_interrupted_backup_has_left_goes(disk: MemoryFileSystem) -> None:
    store = opened(disk)
    writer = store.new_object()
    writer.append([b"abc"])
    disk.make_directory(f"{PLACE}/objects/ff")
    disk.write_bytes(f"{PLACE}/objects/ff/{'f' * 64}", b"orphan")
    store.write_unfinished(store.read_index(store.ids()[0]))

    prune(store, plan_prune(store, Keeping(count=4), now_ms=CREATED_MS))

    assert store.size_of("f" * 64) is None
    assert store.read_unfinished() is None
    assert not disk.exists(f"{PLACE}/staging")
    assert len(store.ids()) == 4


def test_files_that_are_no_objects_stay(disk: MemoryFileSystem) -> None:
    strangers = [f"{PLACE}/objects/notes", f"{PLACE}/objects/ff/.nfs0001"]
    disk.make_directory(f"{PLACE}/objects/ff")
    for path in strangers:
        disk.write_bytes(path, b"dear")
    store = opened(disk)

    prune(store, plan_prune(store, Keeping(count=1), now_ms=CREATED_MS))

    assert all(map(disk.exists, strangers))

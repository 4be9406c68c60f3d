"""Restoring the files of a backup: where they go, and what is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from storage.backup.read_backups import find_backup
from storage.backup.restore_files import (
    check_target,
    leader_epoch,
    plan_restore,
    restore_logs,
)
from storage.files.errors import BackupRefused, DamagedFile
from storage.files.local_files import LocalFileSystem
from storage.files.paths import CLEAN_SHUTDOWN, HASH_KEY, META_PROPERTIES, START_COUNTER
from tests.harness.backups import (
    PLACE,
    TARGET,
    made,
    opened,
    restored,
    restored_contents,
)
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.snapshot_world import SnapshotWorld


@pytest.fixture
def world() -> SnapshotWorld:
    world = SnapshotWorld(MemoryFileSystem(), Random(0))
    for name in ("orders", "prices"):
        world.create_topic(name)
    for _ in range(20):
        world.change()
    return world


@pytest.fixture
def disk(world: SnapshotWorld) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    made(world.fs, world.snapshot(), disk)
    return disk


def newest(disk: MemoryFileSystem) -> str:
    return opened(disk).ids()[-1]


def test_all_files_are_there_as_they_were(world: SnapshotWorld, disk: MemoryFileSystem) -> None:
    backup_id = newest(disk)

    assert restored_contents(opened(disk), backup_id) == world.contents[backup_id]
    assert leader_epoch(opened(disk), find_backup(opened(disk), None)) == 7


def test_each_log_directory_has_a_directory_and_its_marks(disk: MemoryFileSystem) -> None:
    """Both were named `data`, on two disks."""
    target = MemoryFileSystem()

    restored(opened(disk), newest(disk), target)

    assert target.list(TARGET) == ["directory-1", "directory-2"]
    for number in (1, 2):
        names = target.list(f"{TARGET}/directory-{number}")
        assert {CLEAN_SHUTDOWN, META_PROPERTIES, HASH_KEY, START_COUNTER} <= set(names)
        counter = target.read_bytes(f"{TARGET}/directory-{number}/{START_COUNTER}")
        assert int(counter) == 7


def test_directories_of_different_names_keep_them_and_the_metadata_come_first(
    world: SnapshotWorld,
) -> None:
    world.directories = {"A" * 22: "/disk1/data", "B" * 22: "/disk2/more"}
    world.fs.rename("/disk2/data", "/disk2/more")
    disk = MemoryFileSystem()
    index = made(world.fs, world.snapshot(), disk).index

    plan = plan_restore(index, "/new", None, always=())

    assert plan.directories == {"A" * 22: "/new/data", "B" * 22: "/new/more"}
    assert next(iter(plan.directories.values())) == plan.metadata_directory


def test_one_log_directory_is_the_target_itself(world: SnapshotWorld) -> None:
    world.directories.popitem()
    world.logs = [log for log in world.logs if log.directory in world.directories]
    disk, target = MemoryFileSystem(), MemoryFileSystem()
    made(world.fs, world.snapshot(), disk)

    plan = restored(opened(disk), newest(disk), target)

    assert list(plan.directories.values()) == [TARGET]
    assert target.exists(f"{TARGET}/{META_PROPERTIES}")


def test_only_chosen_topics_and_those_that_always_go_along_are_restored(
    disk: MemoryFileSystem,
) -> None:
    index = find_backup(opened(disk), None)

    plan = plan_restore(index, "/new", ["orders"], always=["missing"])
    both = plan_restore(index, "/new", ["orders"], always=["prices"])

    assert plan.topics == {"orders"}
    topics = {file.place.partition(".")[0] for file in plan.files if "/" in file.place}
    assert topics == {"orders"}
    assert {file.place for file in plan.files if "/" not in file.place} == {
        META_PROPERTIES,
        HASH_KEY,
        START_COUNTER,
    }
    assert both.topics == {"orders", "prices"}


def test_a_topic_that_the_backup_lacks_is_refused(disk: MemoryFileSystem) -> None:
    with pytest.raises(BackupRefused, match="has no topic other"):
        plan_restore(find_backup(opened(disk), None), "/new", ["orders", "other"], always=())


def test_nothing_is_overwritten(disk: MemoryFileSystem) -> None:
    target = MemoryFileSystem()
    target.make_directory(TARGET)
    target.write_bytes(f"{TARGET}/letter", b"dear")

    with pytest.raises(BackupRefused, match="not empty: it has letter"):
        restored(opened(disk), newest(disk), target)

    assert target.list(TARGET) == ["letter"]


def test_a_disk_without_the_space_is_refused_at_once(disk: MemoryFileSystem) -> None:
    target = MemoryFileSystem()
    target.faults.space = 100

    with pytest.raises(BackupRefused, match="100 bytes free"):
        restored(opened(disk), newest(disk), target)

    assert target.list(TARGET) == []


def test_a_damaged_object_ends_the_restore_before_a_broker_could_start(
    disk: MemoryFileSystem,
) -> None:
    index = find_backup(opened(disk), None)
    longest = max(index.files, key=lambda each: each.size)
    path = f"{PLACE}/objects/{longest.sha256[:2]}/{longest.sha256}"
    data = disk.read_bytes(path)
    disk.write_bytes(path, data[:-1] + bytes([data[-1] ^ 1]))
    target = MemoryFileSystem()

    with pytest.raises(DamagedFile, match="has other bytes"):
        restored(opened(disk), index.id, target)

    assert not target.exists(f"{TARGET}/directory-1/{META_PROPERTIES}")


def test_the_newest_backup_is_restored_unless_another_one_is_chosen(
    world: SnapshotWorld, disk: MemoryFileSystem
) -> None:
    store = opened(disk)
    first = newest(disk)
    second = made(world.fs, world.snapshot(), disk).index.id

    assert find_backup(store, None).id == second
    assert find_backup(store, first).id == first
    with pytest.raises(BackupRefused, match="has no backup other"):
        find_backup(store, "other")
    disk.write_bytes(f"{PLACE}/backups/{first}.json", b"{}")
    with pytest.raises(BackupRefused, match="may be the newest"):
        find_backup(store, None)
    assert find_backup(store, second).id == second


def test_secrets_are_readable_by_their_owner_only(world: SnapshotWorld, tmp_path: Path) -> None:
    place = tmp_path / "backup"
    made(world.fs, world.snapshot(), LocalFileSystem(), str(place))
    (index,) = (place / "backups").iterdir()
    target = LocalFileSystem()
    plan = plan_restore(
        find_backup(opened(target, str(place)), None), str(tmp_path / "new"), always=()
    )
    check_target(target, plan)
    restore_logs(target, opened(target, str(place)), plan)

    assert place.stat().st_mode & 0o777 == 0o700
    assert index.stat().st_mode & 0o777 == 0o600
    for path in plan.directories.values():
        assert Path(path, HASH_KEY).stat().st_mode & 0o777 == 0o600

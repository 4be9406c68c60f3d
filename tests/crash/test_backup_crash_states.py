"""Crash backups, prunes and restores at every operation on the disk.

After each operation the disk is taken as a power cut may leave it (`tests/harness/memory_fs.py`).
    - Each backup whose index is there is sound and restores its snapshot, as do those that were not
      touched; objects have the names of their bytes.
    - The next backup of the snapshot, or the next prune, ends what was begun, and leaves nothing beside.
    - A restored directory that a broker would start on is complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random

import pytest

from storage.backup import local_store, make_backup
from storage.backup.local_store import read_label
from storage.backup.prune_backups import Keeping, plan_prune, prune
from storage.files.errors import BackupRefused
from storage.files.files import FileSystem
from storage.files.paths import CLEAN_SHUTDOWN, META_PROPERTIES
from tests.harness.backups import (
    PLACE,
    TARGET,
    made,
    opened,
    problems,
    restored,
    restored_contents,
)
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.snapshot_world import CREATED_MS, SnapshotWorld

LOSSES = (Loss.NOTHING, Loss.EVERYTHING, Loss.TORN, Loss.TORN)
KEEP_ONE = Keeping(count=1)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every step of a large backup happen in a small one."""
    monkeypatch.setattr(local_store, "SETTLE_OBJECTS_MAX", 3)
    monkeypatch.setattr(make_backup, "UNFINISHED_BYTES", 4000)
    monkeypatch.setattr(make_backup, "CHUNK_BYTES", 300)


class Sweep:
    """Takes crash states of a disk while something runs on it."""

    def __init__(self, disk: MemoryFileSystem, check: Callable[[MemoryFileSystem], None]) -> None:
        self.disk = disk
        self.check = check
        self.random = Random(0)
        self.states = 0

    def run(self, work: Callable[[], object]) -> None:
        self.disk.on_operation = self.crash_here
        work()
        self.disk.on_operation = None

    def crash_here(self, action: str, path: str) -> None:
        for loss in LOSSES:
            self.states += 1
            left = self.disk.after_crash(loss, self.random)
            try:
                self.check(left)
            except AssertionError as error:
                error.add_note(f"{loss.name} lost after {action} {path}, state {self.states}")
                raise


def changed_world() -> SnapshotWorld:
    world = SnapshotWorld(MemoryFileSystem(), Random(1))
    world.create_topic("orders", 3)
    for _ in range(15):
        world.change()
    return world


def check_backups(world: SnapshotWorld, disk: MemoryFileSystem) -> list[str]:
    """Check that each backup is sound and restores its snapshot. Returns their ids."""
    store = opened(disk)
    assert problems(store) == []
    for sha256, _ in store.objects():
        found = store.open_object(sha256)
        assert hashlib.sha256(found.read_at(0, found.size)).hexdigest() == sha256
    for backup_id in store.ids():
        assert restored_contents(store, backup_id) == world.contents[backup_id]
    return store.ids()


def check_tidy(world: SnapshotWorld, disk: MemoryFileSystem, ids: list[str]) -> None:
    """Check that a prune that keeps all leaves what these backups need, and nothing beside."""
    store = opened(disk)
    prune(store, plan_prune(store, Keeping(count=100), now_ms=CREATED_MS))
    assert check_backups(world, disk) == ids
    needed = {data for each in ids for data in world.contents[each].values()}
    assert sum(1 for _ in store.objects()) == len(needed)
    assert not set(disk.list(PLACE)) - {
        ".lock",
        "kompakt-backup.json",
        "objects",
        "backups",
    }
    assert disk.list(f"{PLACE}/backups") == [f"{each}.json" for each in ids]


def test_a_crash_of_a_backup_leaves_the_earlier_ones_and_the_next_backup_ends_it() -> None:
    world, disk = changed_world(), MemoryFileSystem()
    first = made(world.fs, world.snapshot(), disk).index.id
    for _ in range(15):
        world.change()
    path = world.snapshot()
    second = path.split("/")[-2]
    seen: set[bool] = set()

    def check(left: MemoryFileSystem) -> None:
        ids = check_backups(world, left)
        assert ids in ([first], [first, second])
        seen.add(second in ids)
        if second not in ids:
            made(world.fs, path, left)
        else:
            with pytest.raises(BackupRefused):
                made(world.fs, path, left)
        again = left.after_crash(Loss.EVERYTHING, Random(0))
        assert check_backups(world, again) == [first, second]
        check_tidy(world, left, [first, second])

    sweep = Sweep(disk, check)
    sweep.run(lambda: made(world.fs, path, disk))

    assert seen == {False, True}
    assert sweep.states > 100


def test_a_crash_of_the_first_backup_leaves_a_directory_that_takes_it() -> None:
    world, disk = changed_world(), MemoryFileSystem()
    path = world.snapshot()
    backup_id = path.split("/")[-2]
    seen: set[bool] = set()

    def check(left: MemoryFileSystem) -> None:
        is_repository = read_label(left, PLACE) is not None
        seen.add(is_repository)
        if not is_repository or check_backups(world, left) == []:
            made(world.fs, path, left)
        check_tidy(world, left, [backup_id])

    Sweep(disk, check).run(lambda: made(world.fs, path, disk))

    assert seen == {False, True}


def test_a_crash_of_a_prune_leaves_the_backups_that_stay_and_the_next_prune_ends_it() -> None:
    world, disk = changed_world(), MemoryFileSystem()
    ids = []
    for _ in range(3):
        for _ in range(8):
            world.change()
        ids.append(made(world.fs, world.snapshot(), disk).index.id)
    seen: set[int] = set()

    def check(left: MemoryFileSystem) -> None:
        found = check_backups(world, left)
        seen.add(len(found))
        assert found[-1] == ids[-1]
        store = opened(left)
        prune(store, plan_prune(store, KEEP_ONE, now_ms=CREATED_MS))
        check_tidy(world, left, ids[-1:])

    store = opened(disk)
    plan = plan_prune(store, KEEP_ONE, now_ms=CREATED_MS)
    Sweep(disk, check).run(lambda: prune(store, plan))

    assert seen == {1, 2, 3}


def test_a_restore_that_a_crash_has_cut_short_is_nothing_that_a_broker_starts_on() -> None:
    world, repository = changed_world(), MemoryFileSystem()
    backup_id = made(world.fs, world.snapshot(), repository).index.id
    store, disk = opened(repository), MemoryFileSystem()
    contents = world.contents[backup_id]
    directories = {each: f"{TARGET}/directory-{n}" for n, each in enumerate(world.directories, 1)}
    seen: set[tuple[bool, bool]] = set()

    def check(left: MemoryFileSystem) -> None:
        labelled = [has(left, path, META_PROPERTIES) for path in directories.values()]
        marked = [has(left, path, CLEAN_SHUTDOWN) for path in directories.values()]
        seen.add((any(labelled), any(marked)))
        if any(marked):
            assert all(labelled)
        if any(labelled):
            for path, data in contents.items():
                directory, _, place = path.partition("/")
                if place != META_PROPERTIES:
                    assert left.read_bytes(f"{directories[directory]}/{place}") == data

    Sweep(disk, check).run(lambda: restored(store, backup_id, disk))

    assert seen == {(False, False), (True, False), (True, True)}


def has(fs: FileSystem, directory: str, name: str) -> bool:
    return fs.exists(f"{directory}/{name}") and len(fs.read_bytes(f"{directory}/{name}")) > 0

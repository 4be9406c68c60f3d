"""The child dies, or the power goes, at every disk operation of a merge: nothing is ever lost."""

from __future__ import annotations

from random import Random

import pytest

from replog import checkpoints
from replog.independent import Independent
from replog.offline_merge.merging_snapshotter import OfflineMerge
from replog.offline_merge.plan import MergePlan
from replog.replica import Replica
from storage.files.errors import StorageError
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.replog_machine import KeyValueMachine
from tests.harness.replog_merging import MERGER, SimulatedChild
from tests.replog.test_replica import DIRECTORY, SETTINGS, names, new_disk, put, rows

LOSSES = (Loss.EVERYTHING, Loss.NOTHING, Loss.TORN, Loss.TORN, Loss.TORN)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "BLOCK_BYTES", 60)


class Children:
    """Starts simulated children; the first one dies at an operation, if one is given."""

    def __init__(self, disk: MemoryFileSystem, dies_at: int | None = None) -> None:
        self.disk = disk
        self.dies_at = dies_at
        self.started: list[SimulatedChild] = []

    def __call__(self, plan: MergePlan, seconds: float) -> SimulatedChild:
        left = None if self.started else self.dies_at
        self.started.append(SimulatedChild(self.disk, plan, operations_left=left))
        return self.started[-1]


def opened(disk: MemoryFileSystem, start: Children | None = None) -> tuple[Replica, Independent]:
    start = start or Children(disk)
    replica = Replica(disk, DIRECTORY, KeyValueMachine(), clock_ms=lambda: 0.0)
    compactor = Independent(replica, SETTINGS, OfflineMerge(MERGER, start=start, bytes_min=0))
    replica.open()
    compactor.opened()
    replica.lead(replica.log.last_term + 1)
    return replica, compactor


def write(compactor: Independent) -> None:
    compactor.begin()
    while compactor.is_snapshotting:
        while compactor.step():
            pass
        compactor.finish()


def filled(disk: MemoryFileSystem) -> None:
    replica, compactor = opened(disk)
    put(replica, *"abcdef")
    write(compactor)
    put(replica, "c", "x")
    replica.close()


def test_the_child_may_die_at_each_of_its_operations() -> None:
    dies_at = 0
    while True:
        disk = new_disk()
        filled(disk)
        start = Children(disk, dies_at)
        replica, compactor = opened(disk, start)
        before = dict(rows(replica))
        compactor.begin()
        put(replica, "meanwhile")
        while compactor.is_snapshotting:
            while compactor.step():
                pass
            compactor.finish()

        has_died = start.started[0].problem is not None
        assert start.started[0].is_closed
        assert not any(name.endswith(".part") for name in names(disk))
        # In process, the snapshot is that of the state when the child had failed.
        assert replica.snapshot.end == replica.log.end - (not has_died)
        after = opened(disk.after_crash(Loss.EVERYTHING, Random(1)))[0]
        assert rows(after) == before | {b"meanwhile": b"value of meanwhile"}
        if not has_died:
            break
        dies_at += 1
    assert dies_at > 5


@pytest.mark.parametrize("dies_at", [None, 3])
def test_the_power_may_go_at_each_operation_of_a_merge(dies_at: int | None) -> None:
    disk = new_disk()
    filled(disk)
    replica, compactor = opened(disk, Children(disk, dies_at))
    expected = dict(rows(replica))
    states = 0

    def crash(*_: object) -> None:
        nonlocal states
        for loss in LOSSES:
            states += 1
            left = disk.after_crash(loss, Random(states))
            again, own = opened(left)
            assert rows(again) == expected
            put(again, "after")
            write(own)
            last = opened(left.after_crash(Loss.EVERYTHING, Random(states)))[0]
            assert rows(last) == expected | {b"after": b"value of after"}

    disk.on_operation = crash
    write(compactor)

    assert states > 50


@pytest.mark.parametrize("dies_at", range(0, 12, 3))
def test_a_full_disk_during_a_merge_gives_up_the_snapshot_and_nothing_else(dies_at: int) -> None:
    disk = new_disk()
    filled(disk)
    replica, compactor = opened(disk)
    before = dict(rows(replica))
    disk.faults.space = 30 * dies_at
    try:
        write(compactor)
    except StorageError:
        compactor.abandon()
    disk.faults.heal()

    assert not any(name.endswith(".part") for name in names(disk))
    put(replica, "b")
    write(compactor)
    assert rows(opened(disk)[0]) == before | {b"b": b"value of b"}


def test_the_bound_on_the_disk_holds_while_a_child_writes() -> None:
    disk = new_disk()
    filled(disk)
    replica, compactor = opened(disk)
    put(replica, *(f"key {number}" for number in range(50)))
    compactor.begin()
    while compactor.step():
        size = sum(disk.size(f"{DIRECTORY}/{name}") for name in names(disk))
        use = compactor.disk_use()
        assert use.total_bytes == size
        assert size <= compactor.bound_bytes()
    compactor.finish()


@pytest.mark.parametrize("steps_before", range(8))
@pytest.mark.parametrize("steps_after", range(4))
def test_a_child_that_outlives_its_parent_for_a_moment_spoils_nothing(
    steps_before: int, steps_after: int
) -> None:
    """As after a kill -9: the next process merges the same snapshot, and both write at a time."""
    disk = new_disk()
    filled(disk)
    start = Children(disk)
    _, compactor = opened(disk, start)
    compactor.begin()
    for _ in range(steps_before):
        compactor.step()
    if not start.started:
        compactor.step()
    (orphan,) = start.started

    again, own = opened(disk)
    before = dict(rows(again))
    own.begin()
    for _ in range(steps_after):
        own.step()
        orphan.step()
    while own.is_snapshotting:
        while own.step():
            orphan.step()
        own.finish()

    assert rows(opened(disk)[0]) == before
    assert rows(opened(disk.after_crash(Loss.EVERYTHING, Random(1)))[0]) == before


def test_a_file_that_is_not_what_the_child_says_is_never_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = new_disk()
    filled(disk)
    replica, compactor = opened(disk, Careless(disk))
    before = dict(rows(replica))
    write(compactor)

    assert "the child's file cannot be used" in caplog.text
    assert rows(opened(disk)[0]) == before


class Careless(Children):
    """Starts children that lose the end of their file."""

    def __call__(self, plan: MergePlan, seconds: float) -> SimulatedChild:
        return SimulatedChild(self.disk, plan, is_careless=True)

"""A follower installs a snapshot by position, checks it, and serves its old state until then."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from replog.compactor import LogCompactor, Placement
from replog.entry import Kind
from replog.entry_log import EntryLog
from replog.following import Follower
from replog.in_log import InLog
from replog.messages import Answer, Diverging, Entries, FetchSnapshot, SnapshotBytes
from replog.replica import Replica, Role
from replog.serving import answer
from storage.files.errors import StorageError
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.replog_machine import KeyValueMachine
from tests.harness.replog_world import COMPACTORS
from tests.replog.test_replica import DIRECTORY, SETTINGS, new_disk, opened, put, rows, snapshot

SMALL = 60
"""Bytes of an answer, so that a snapshot takes several."""


def follower_on(
    disk: MemoryFileSystem,
    placement: Placement = Placement.INDEPENDENT,
    *,
    continues_download: bool = False,
) -> tuple[Replica, LogCompactor, Follower]:
    replica = Replica(disk, DIRECTORY, KeyValueMachine(), clock_ms=lambda: 0.0)
    compactor = COMPACTORS[placement](replica, SETTINGS)
    replica.open(continues_download=continues_download)
    compactor.opened()
    return replica, compactor, Follower(replica, compactor, KeyValueMachine)


def exchange(follower: Follower, leader: Replica, times: int = 1) -> Answer:
    found: Answer
    for _ in range(times):
        found = answer(leader, follower.request(), SMALL)
        follower.receive(found)
    return found


def leader_ahead(
    placement: Placement = Placement.INDEPENDENT,
) -> tuple[Replica, Replica, LogCompactor, Follower]:
    """Returns a leader, and a follower that has its first entry; the leader has dropped more."""
    leader, compactor = opened(new_disk(), placement=placement)
    put(leader, "a")
    copy, own, follower = follower_on(new_disk(), placement)
    exchange(follower, leader)
    assert set(rows(copy)) == {b"a"}
    for key in "bcdefgh":
        put(leader, key * 30)
    snapshot(compactor)
    put(leader, "after")
    return leader, copy, own, follower


@pytest.mark.parametrize("placement", Placement)
def test_a_slow_follower_takes_the_snapshot_and_then_the_entries(placement: Placement) -> None:
    leader, copy, _, follower = leader_ahead(placement)

    served = []
    for _ in range(60):
        exchange(follower, leader)
        served.append(len(rows(copy)))

    assert rows(copy) == rows(leader)
    assert (follower.installs, copy.role) == (1, Role.LEARNER)
    assert copy.is_snapshot_in_log is (placement is Placement.IN_LOG)
    assert set(served) <= {1, 8, 9}, "the old state is served until the new one is whole"


def test_after_a_break_the_snapshot_goes_on_where_it_stopped() -> None:
    leader, copy, _, follower = leader_ahead()
    exchange(follower, leader, 3)
    wanted = follower.request()
    assert isinstance(wanted, FetchSnapshot)
    assert wanted.position == 2 * SMALL

    late = answer(leader, replace(wanted, position=0), SMALL)
    follower.receive(late)

    assert follower.request() == wanted, "a repeated answer changes nothing"
    assert copy.role is Role.INSTALLING
    exchange(follower, leader, 40)
    assert rows(copy) == rows(leader)


def test_a_snapshot_that_arrives_damaged_is_fetched_again() -> None:
    leader, copy, _, follower = leader_ahead()
    exchange(follower, leader, 2)
    found = answer(leader, follower.request(), SMALL)
    assert isinstance(found, SnapshotBytes)
    follower.receive(replace(found, data=bytes(len(found.data))))

    exchange(follower, leader, 80)

    assert (rows(copy), follower.installs) == (rows(leader), 1)


def test_a_start_after_an_installation_that_was_cut_short_has_the_old_state() -> None:
    leader, copy, _, follower = leader_ahead()
    exchange(follower, leader, 3)
    copy.close()
    assert isinstance(copy.files, MemoryFileSystem)

    again, _, follower = follower_on(copy.files)
    again.lead(1)

    assert set(rows(again)) == {b"a"}
    assert not any(name.endswith(".part") for name in copy.files.list(DIRECTORY))


def test_after_a_restart_the_snapshot_goes_on_where_it_stopped() -> None:
    leader, copy, _, follower = leader_ahead()
    exchange(follower, leader, 3)
    wanted = follower.request()
    follower.close()
    copy.close()
    assert isinstance(copy.files, MemoryFileSystem)

    again, _, follower = follower_on(copy.files, continues_download=True)

    assert follower.request() == wanted
    assert (again.role, set(rows(again))) == (Role.INSTALLING, set())
    exchange(follower, leader, 40)
    assert (rows(again), follower.installs, follower.damaged) == (rows(leader), 1, 0)


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("seed", range(5))
def test_what_a_power_cut_has_left_of_a_download_never_becomes_the_state(
    loss: Loss, seed: int
) -> None:
    leader, copy, _, follower = leader_ahead()
    exchange(follower, leader, 4)
    assert isinstance(copy.files, MemoryFileSystem)
    disk = copy.files.after_crash(loss, Random(seed))

    again, _, follower = follower_on(disk, continues_download=True)
    exchange(follower, leader, 80)

    assert (rows(again), follower.installs) == (rows(leader), 1)


def test_a_start_keeps_no_part_of_a_snapshot_of_its_own() -> None:
    leader, _ = opened(new_disk())
    put(leader, "a", "b")
    copy, own, follower = follower_on(new_disk())
    exchange(follower, leader, 2)
    own.begin()
    assert isinstance(copy.files, MemoryFileSystem)
    assert any(name.endswith(".part") for name in copy.files.list(DIRECTORY))

    again, _, follower = follower_on(copy.files.after_kill(), continues_download=True)

    assert again.received is None
    assert not any(name.endswith(".part") for name in again.files.list(DIRECTORY))
    exchange(follower, leader, 2)
    assert rows(again) == rows(leader)


@pytest.mark.parametrize("placement", Placement)
def test_a_start_that_is_cut_short_while_it_removes_an_installation_can_be_repeated(
    placement: Placement,
) -> None:
    """The segments that follow a reset segment are gone for good before that one is removed: alone
    they would be a log whose snapshot is missing."""
    leader, copy, _, follower = leader_ahead(placement)
    exchange(follower, leader, 3)
    copy.close()
    assert isinstance(copy.files, MemoryFileSystem)
    left: list[MemoryFileSystem] = []
    disk = copy.files.after_crash(Loss.NOTHING, Random(1))
    disk.on_operation = lambda *_: left.extend(
        disk.after_crash(loss, Random(seed)) for loss in Loss for seed in range(3)
    )
    follower_on(disk, placement)

    assert left
    for each in left:
        again, _, _ = follower_on(each, placement)
        again.lead(1)
        assert set(rows(again)) == {b"a"}


def test_a_follower_that_installs_cannot_lead() -> None:
    leader, copy, _, follower = leader_ahead()
    exchange(follower, leader)

    with pytest.raises(AssertionError, match="cannot lead"):
        copy.lead(2)


def test_entries_that_the_leader_lacks_are_cut_off_unless_they_were_committed() -> None:
    leader, _ = opened(new_disk())
    put(leader, "a")
    disk = new_disk()
    former, _ = opened(disk)
    put(former, "a", "never committed")
    former.close()

    copy, _, follower = follower_on(disk)
    leader.term += 1
    put(leader, "b")
    exchange(follower, leader, 3)

    assert set(rows(copy)) == {b"a", b"b"}
    assert copy.log.last_term == leader.term


def test_a_leader_without_committed_entries_is_refused() -> None:
    leader, _ = opened(new_disk())
    copy, _, follower = follower_on(new_disk())
    put(leader, "a", "b")
    exchange(follower, leader)
    shorter, _ = opened(new_disk())

    found = answer(shorter, follower.request())
    assert isinstance(found, Diverging)
    with pytest.raises(StorageError, match="it is not a leader of this log"):
        follower.receive(found)
    assert set(rows(copy)) == {b"a", b"b"}


def test_a_copy_whose_state_differs_from_the_leaders_takes_its_snapshot() -> None:
    leader, compactor = opened(new_disk(), placement=Placement.LEADER_EXTERNAL)
    put(leader, "a", "b")
    copy, own, follower = follower_on(new_disk(), Placement.LEADER_EXTERNAL)
    exchange(follower, leader)
    copy.machine.apply(0, b"a=applied differently")
    snapshot(compactor)
    for _ in range(40):
        exchange(follower, leader)
        while own.is_snapshotting:
            if not own.step():
                own.finish()

    assert rows(copy) == rows(leader)
    assert copy.wanted is None
    assert follower.installs == 1


def test_an_answer_of_a_leader_that_was_replaced_is_ignored() -> None:
    leader, _ = opened(new_disk())
    copy, _, follower = follower_on(new_disk())
    put(leader, "a")
    old = answer(leader, follower.request())
    assert isinstance(old, Entries)
    leader.term = 5
    exchange(follower, leader)
    leader.append([(Kind.COMMAND, b"b=1")])
    exchange(follower, leader)

    follower.receive(replace(old, leader_term=1))

    assert set(rows(copy)) == {b"a", b"b"}


def test_chunks_are_appended_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InLog, "chunk_bytes", 20)
    leader, compactor = opened(new_disk(), placement=Placement.IN_LOG)
    put(leader, *"abcdefgh")
    snapshot(compactor)

    sizes = [len(frame.contents) for frame in leader.log.frames(leader.log.start)]
    assert max(sizes) == 4


def test_entries_are_applied_without_reading_the_log_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading it for each frame of an answer would take time that grows with their square."""
    leader, _ = opened(new_disk())
    copy, _, follower = follower_on(new_disk())
    for key in "abcdefgh":
        put(leader, key)
    found = answer(leader, follower.request())
    assert isinstance(found, Entries)
    assert len(found.frames) == 8

    def read(*_: object) -> None:
        pytest.fail("the log is read")

    monkeypatch.setattr(EntryLog, "frames", read)
    follower.receive(found)

    assert rows(copy) == rows(leader)


def test_a_log_that_arrives_damaged_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, copy, _, follower = leader_ahead(Placement.IN_LOG)
    with monkeypatch.context() as patched:
        patched.setattr(KeyValueMachine, "restore", lambda *_: None)
        while not follower.damaged:
            exchange(follower, leader)
    assert set(rows(copy)) == {b"a"}

    exchange(follower, leader, 40)

    assert rows(copy) == rows(leader)
    assert follower.installs == 1

"""One copy: what a start finds, keeps and refuses."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Iterable
from random import Random

import pytest

from replog import checkpoints
from replog.checkpoint_format import encode_block
from replog.compactor import LogCompactor, Placement
from replog.control import End, abandoned_payload, decode_end, end_payload, start_payload
from replog.digest import set_digest
from replog.entry import Frame, Kind
from replog.leader_external import LeaderExternal
from replog.machine import Row
from replog.replica import Replica, Role
from replog.trigger import CompactionSettings
from storage.files.errors import DamagedFile, NoSpace, StorageError, SyncFailed
from tests.harness.damage import flip
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.replog_machine import KeyValueMachine
from tests.harness.replog_world import COMPACTORS

DIRECTORY = "/data/replog"
SETTINGS = CompactionSettings(catchup_entries=0)


def new_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(DIRECTORY)
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


def opened(
    disk: MemoryFileSystem,
    settings: CompactionSettings = SETTINGS,
    placement: Placement = Placement.INDEPENDENT,
) -> tuple[Replica, LogCompactor]:
    """Returns a leader, with everything applied."""
    replica = Replica(disk, DIRECTORY, KeyValueMachine(), clock_ms=lambda: 0.0)
    compactor = COMPACTORS[placement](replica, settings)
    replica.open()
    compactor.opened()
    replica.lead(replica.log.last_term + 1)
    return replica, compactor


def put(replica: Replica, *keys: str) -> None:
    replica.append([(Kind.COMMAND, f"{key}=value of {key}".encode()) for key in keys])
    replica.apply_confirmed()


def snapshot(compactor: LogCompactor) -> None:
    compactor.begin()
    while compactor.step():
        pass
    compactor.finish()


def rows(replica: Replica) -> dict[bytes, bytes]:
    assert isinstance(replica.machine, KeyValueMachine)
    return replica.machine.rows


def names(disk: MemoryFileSystem) -> list[str]:
    return disk.list(DIRECTORY)


@pytest.mark.parametrize("placement", Placement)
def test_a_start_has_the_state_of_the_snapshot_and_of_the_entries_after_it(
    placement: Placement,
) -> None:
    disk = new_disk()
    replica, compactor = opened(disk, placement=placement)
    put(replica, "a", "b")
    snapshot(compactor)
    put(replica, "c")
    before = dict(rows(replica))
    replica.close()

    replica, _ = opened(disk.after_crash(Loss.EVERYTHING, Random(1)), placement=placement)

    assert rows(replica) == before
    assert replica.log.start > 1
    assert replica.is_snapshot_in_log is (placement is Placement.IN_LOG)


@pytest.mark.parametrize("placement", Placement)
def test_entries_that_are_appended_while_a_snapshot_is_written_are_not_in_it(
    placement: Placement,
) -> None:
    disk = new_disk()
    replica, compactor = opened(disk, placement=placement)
    put(replica, "a")
    compactor.begin()
    put(replica, "b")
    while compactor.step():
        put(replica, "c")
    compactor.finish()

    fresh = KeyValueMachine()
    copy = Replica(disk, DIRECTORY, fresh, clock_ms=lambda: 0.0)
    copy.read()
    assert set(fresh.rows) == {b"a"}
    copy, _ = opened(disk, placement=placement)
    assert set(rows(copy)) == {b"a", b"b", b"c"}


def test_the_state_goes_on_from_each_placement_to_each_other() -> None:
    for first in Placement:
        for second in Placement:
            disk = new_disk()
            replica, compactor = opened(disk, placement=first)
            for placement in (second, first, second):
                put(replica, placement.value)
                snapshot(compactor)
                put(replica, "after")
                before = dict(rows(replica))
                replica.close()
                replica, compactor = opened(disk, placement=placement)
                assert rows(replica) == before, (first, second)


def test_a_damaged_snapshot_is_refused_with_a_sentence_that_says_what_heals_it() -> None:
    disk = new_disk()
    replica, compactor = opened(disk)
    put(replica, "a")
    snapshot(compactor)
    flip(disk, replica.checkpoints.path(replica.snapshot), 40)

    with pytest.raises(DamagedFile, match=r"is damaged: .*restore the directory from a"):
        opened(disk)


def test_with_two_snapshots_a_damaged_one_is_replaced_by_the_older_and_its_log() -> None:
    disk = new_disk()
    settings = CompactionSettings(snapshots_keep=2, catchup_entries=0)
    replica, compactor = opened(disk, settings)
    for key in "abc":
        put(replica, key)
        snapshot(compactor)
    put(replica, "d")
    before = dict(rows(replica))
    assert sum(name.endswith(".checkpoint") for name in names(disk)) == 2
    flip(disk, replica.checkpoints.path(replica.snapshot), 40)

    replica, compactor = opened(disk, settings)
    assert rows(replica) == before
    put(replica, "e")
    snapshot(compactor)
    assert opened(disk, settings)[0].applied_end == replica.applied_end


def without(suffix: str) -> Callable[[MemoryFileSystem], None]:
    def remove(disk: MemoryFileSystem) -> None:
        for name in names(disk):
            if name.endswith(suffix):
                disk.unlink(f"{DIRECTORY}/{name}")

    return remove


def without_the_last_segment(disk: MemoryFileSystem) -> None:
    disk.unlink(f"{DIRECTORY}/{[name for name in names(disk) if name.endswith('.replog')][-1]}")


@pytest.mark.parametrize(
    "lose", [without(".checkpoint"), without(".replog"), without_the_last_segment]
)
@pytest.mark.parametrize("catchup", [0, 100])
def test_a_start_never_begins_with_less_than_there_was(
    lose: Callable[[MemoryFileSystem], None], catchup: int
) -> None:
    disk = new_disk()
    settings = CompactionSettings(catchup_entries=catchup)
    replica, compactor = opened(disk, settings)
    for key in "abcdef":
        put(replica, key)
        snapshot(compactor)
    before = dict(rows(replica))
    lose(disk)
    left = {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in names(disk)}

    try:
        replica, _ = opened(disk, settings)
    except StorageError:
        assert {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in names(disk)} == left
    else:
        # The whole log is still there.
        assert (rows(replica), catchup) == (before, 100)


def test_a_machine_that_differs_from_its_digest_is_never_written_as_a_snapshot() -> None:
    disk = new_disk()
    replica, compactor = opened(disk)
    put(replica, "a", "b")
    rows(replica)[b"a"] = b"changed by a defect"

    with pytest.raises(StorageError, match="which has applied a command wrongly"):
        snapshot(compactor)
    compactor.abandon()

    assert rows(opened(disk)[0])[b"a"] == b"value of a"


def test_a_full_disk_gives_up_the_snapshot_and_nothing_else() -> None:
    disk = new_disk()
    replica, compactor = opened(disk)
    put(replica, "a" * 300)
    disk.faults.space = 100
    with pytest.raises(NoSpace):
        snapshot(compactor)
    compactor.abandon()
    disk.faults.heal()

    assert not any(name.endswith(".part") for name in names(disk))
    put(replica, "b")
    snapshot(compactor)
    assert rows(opened(disk)[0]) == rows(replica)


def test_after_a_failed_sync_nothing_more_is_appended() -> None:
    disk = new_disk()
    replica, _ = opened(disk)
    disk.faults.fail("sync", 5)
    with pytest.raises(SyncFailed):
        put(replica, "a")

    with pytest.raises(StorageError, match="out of service"):
        put(replica, "b")


def test_a_copy_without_its_snapshot_cannot_lead() -> None:
    replica = Replica(new_disk(), DIRECTORY, KeyValueMachine(), clock_ms=lambda: 0.0)
    replica.open()
    replica.role = Role.INSTALLING

    with pytest.raises(AssertionError, match="cannot lead"):
        replica.lead(1)


def test_the_disk_stays_within_the_bound_and_the_bound_follows_u() -> None:
    sizes: dict[float, float] = {}
    for u in (0.1, 1.0):
        disk = new_disk()
        settings = CompactionSettings(u=u, floor_bytes=1_000, catchup_entries=0, segment_bytes=500)
        replica, compactor = opened(disk, settings)
        sizes[u] = 0
        for number in range(2_000):
            put(replica, str(number % 20))
            if compactor.due() is not None:
                snapshot(compactor)
            size = sum(disk.size(f"{DIRECTORY}/{name}") for name in names(disk))
            assert size <= compactor.bound_bytes()
            sizes[u] = max(sizes[u], size)
    assert sizes[0.1] > 4 * sizes[1.0]


def test_equal_states_have_equal_files() -> None:
    contents = []
    for order in ("abc", "cba"):
        disk = new_disk()
        replica, compactor = opened(disk)
        for key in order:
            put(replica, key)
        snapshot(compactor)
        contents.append(disk.read_bytes(replica.checkpoints.path(replica.snapshot)))
    assert contents[0] == contents[1]


def test_the_digest_of_a_machine_is_that_of_its_rows() -> None:
    machine = KeyValueMachine()
    random = Random(3)
    for index in range(300):
        key = b"%d" % random.randrange(20)
        machine.apply(index, key if random.random() < 0.3 else key + b"=" + key * index)
    assert machine.digest() == set_digest(machine.snapshot())


def test_a_start_counts_the_log_between_the_kept_snapshots_in_the_bound() -> None:
    disk = new_disk()
    settings = CompactionSettings(
        u=0.3, floor_bytes=400, catchup_entries=0, segment_bytes=60, snapshots_keep=2
    )
    replica, compactor = opened(disk, settings)
    snapshots = 0
    for number in range(400):
        put(replica, str(number % 9), str(number % 5))
        if compactor.due() is not None:
            snapshot(compactor)
            snapshots += 1
        if number % 31 == 0:
            replica.close()
            replica, compactor = opened(disk, settings)
            compactor.due()
        size = sum(disk.size(f"{DIRECTORY}/{name}") for name in names(disk))
        assert size <= compactor.bound_bytes()
    assert snapshots > 10


@pytest.mark.parametrize("is_leader", [True, False])
def test_after_a_power_cut_behind_a_start_the_next_entry_still_begins_a_segment(
    is_leader: bool,
) -> None:
    """Else no segment would begin where the snapshot ends, and a start would miss it."""
    disk = new_disk()
    replica, _ = opened(disk, placement=Placement.LEADER_EXTERNAL)
    put(replica, "a")
    start = [(Kind.START, start_payload(replica.log.last_term))]
    end = replica.append(start).end
    replica.close()
    last = names(disk)[-1]
    assert last.startswith(f"{end:020d}")
    disk.unlink(f"{DIRECTORY}/{last}")  # The power went before it was created.

    again = Replica(disk, DIRECTORY, KeyValueMachine(), clock_ms=lambda: 0.0)
    COMPACTORS[Placement.LEADER_EXTERNAL](again, SETTINGS)
    again.open()
    if is_leader:
        again.lead(2)  # It appends ABANDONED.
    else:
        again.append_confirmed(Frame(end, 1, ((Kind.COMMAND, b"b=1"),)))

    assert [each.base for each in again.log.segments] == [1, end - 1, end]


def test_rows_are_counted_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that changes after its hash was taken would pass every checksum of its file."""

    def altered(block: Iterable[Row]) -> bytes:
        return encode_block([(key, value.upper()) for key, value in block])

    disk = new_disk()
    _, compactor = opened(disk)
    put(compactor.replica, "a", "b")
    monkeypatch.setattr(checkpoints, "encode_block", altered)

    with pytest.raises(StorageError, match="the digest of its rows differs"):
        snapshot(compactor)


def test_the_rows_are_synced_before_the_snapshot_is_finished() -> None:
    """Nothing else may happen while it is finished."""
    disk = new_disk()
    _, compactor = opened(disk)
    put(compactor.replica, "a", "b")
    compactor.begin()
    while compactor.step():
        pass
    disk.sync_directory(DIRECTORY)
    (part,) = [f"{DIRECTORY}/{name}" for name in names(disk) if name.endswith(".part")]

    assert b"value of b" in disk.after_crash(Loss.EVERYTHING, Random(1)).read_bytes(part)


def test_a_snapshot_that_cannot_begin_leaves_no_part() -> None:
    disk = new_disk()
    _, compactor = opened(disk)
    put(compactor.replica, "a")
    disk.faults.fail("append to", errno.ENOSPC, path=".part")

    with pytest.raises(NoSpace):
        compactor.begin()
    compactor.abandon()

    assert not any(name.endswith(".part") for name in names(disk))
    snapshot(compactor)


def test_a_segment_that_cannot_be_removed_stays_in_the_log() -> None:
    disk = new_disk()
    replica, _ = opened(disk)
    put(replica, "a")
    replica.log.roll()
    put(replica, "b")
    before = replica.log.start
    disk.faults.fail("unlink", errno.EIO)

    with pytest.raises(StorageError):
        replica.log.drop_before(replica.log.end)

    assert replica.log.start == before
    assert [entry.index for entry in replica.entries(before)] == [before, before + 1]
    replica.log.drop_before(replica.log.end)
    assert replica.log.start == before + 1


def snapshot_without_end(compactor: LogCompactor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a snapshot of the leader's whose file is complete, and end before the END."""
    with monkeypatch.context() as patched:
        patched.setattr(LeaderExternal, "_append_end", lambda *_: None)
        snapshot(compactor)


def test_a_start_uses_no_snapshot_that_no_end_has_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = new_disk()
    replica, compactor = opened(disk, placement=Placement.LEADER_EXTERNAL)
    put(replica, "a")
    snapshot(compactor)
    put(replica, "b")
    confirmed = replica.snapshot
    snapshot_without_end(compactor, monkeypatch)
    replica.close()

    replica, _ = opened(disk, placement=Placement.LEADER_EXTERNAL)

    assert replica.snapshot == confirmed
    assert set(rows(replica)) == {b"a", b"b"}


def test_snapshots_that_were_abandoned_leave_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    replica, compactor = opened(disk, placement=Placement.LEADER_EXTERNAL)
    put(replica, "a")
    for _ in range(5):
        snapshot_without_end(compactor, monkeypatch)
        assert compactor.disk_use().writing_bytes > 0
        replica.append([(Kind.ABANDONED, abandoned_payload(replica.log.end - 1))])
        replica.apply_confirmed()

    assert not any("checkpoint" in name for name in names(disk))


def test_a_copy_that_finds_another_state_in_its_log_cannot_lead() -> None:
    disk = new_disk()
    replica, compactor = opened(disk, placement=Placement.LEADER_EXTERNAL)
    put(replica, "a")
    snapshot(compactor)
    put(replica, "b")
    end = compactor_end(replica)
    replica.append([(Kind.END, end_payload(dataclasses.replace(end, digest=end.digest ^ 1)))])
    replica.close()

    with pytest.raises(StorageError, match="cannot lead"):
        opened(disk, placement=Placement.LEADER_EXTERNAL)


def compactor_end(replica: Replica) -> End:
    """Returns the last END of a log."""
    ends = [each for each in replica.entries(replica.log.start) if each.kind is Kind.END]
    return decode_end(ends[-1].payload)

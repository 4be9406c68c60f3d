"""A merged snapshot has the bytes of one that is made in process at the same index."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog import checkpoints
from replog.checkpoints import PART
from replog.entry import EMPTY, Kind, SnapshotId
from replog.offline_merge.merge import merge
from replog.offline_merge.merger import merged, named_merger
from replog.offline_merge.plan import MergePlan
from replog.offline_merge.snapshot_reader import SnapshotReader
from replog.replica import Replica
from replog.trigger import CompactionSettings
from storage.files.errors import DamagedFile, StorageError
from tests.harness.damage import flip
from tests.harness.examples import examples
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.replog_merging import MERGER, KeyValueMerger
from tests.replog.test_replica import DIRECTORY, SETTINGS, new_disk, opened, put, snapshot

KEYS = st.sampled_from([b"a", b"b", b"bb", b"c", b"", b"\xff"])
COMMANDS = st.one_of(KEYS, st.tuples(KEYS, st.binary(max_size=90)).map(b"=".join))
HISTORIES = st.lists(st.lists(COMMANDS, max_size=12), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "BLOCK_BYTES", 150)


def plan_of(replica: Replica) -> MergePlan:
    """Returns the plan of a snapshot now; the log must have been rolled."""
    return MergePlan(
        directory=DIRECTORY,
        base=replica.snapshot,
        snapshot=SnapshotId(replica.log.end, replica.log.last_term),
        digest=replica.machine.digest(),
        merger=MERGER,
    )


def merged_bytes(disk: MemoryFileSystem, plan: MergePlan) -> bytes:
    """Merge, and take the part away."""
    for _ in merge(disk, plan, named_merger(plan.merger)):
        pass
    (name,) = [name for name in disk.list(DIRECTORY) if name.endswith(PART)]
    data = disk.read_bytes(f"{DIRECTORY}/{name}")
    disk.unlink(f"{DIRECTORY}/{name}")
    return data


def in_process_bytes(replica: Replica, plan: MergePlan) -> bytes:
    writer = replica.checkpoints.begin(
        plan.snapshot, replica.machine.snapshot(), replica.machine.digest()
    )
    while writer.step():
        pass
    writer.finish()
    path = replica.checkpoints.path(plan.snapshot) + PART
    data = replica.files.read_bytes(path)
    replica.files.unlink(path)
    return data


@settings(max_examples=examples(150), deadline=None)
@given(history=HISTORIES, segment_bytes=st.sampled_from([60, 300, 10_000]))
def test_a_merged_snapshot_has_the_bytes_of_one_made_in_process(
    history: list[list[bytes]], segment_bytes: int
) -> None:
    disk = new_disk()
    replica, compactor = opened(disk, CompactionSettings(catchup_entries=3))
    replica._segment_bytes = segment_bytes
    for commands in history:
        for command in commands:
            replica.append([(Kind.COMMAND, command)])
            replica.apply_confirmed()
        replica.log.roll()
        plan = plan_of(replica)
        if plan.snapshot.end == plan.base.end:
            continue
        assert merged_bytes(disk, plan) == in_process_bytes(replica, plan)
        snapshot(compactor)


def test_rows_are_merged_in_the_order_of_their_keys() -> None:
    merger = KeyValueMerger(lambda _: None)
    for command in (b"a=0", b"c=2", b"d", b"e=4", b"z=9", b"gone"):
        merger.add(1, command)

    found = list(merged([(b"b", b"1"), (b"d", b"3"), (b"e", b"3"), (b"f", b"5")], merger))

    assert found == [
        (b"a", b"0"), (b"b", b"1"), (b"c", b"2"), (b"e", b"4"), (b"f", b"5"), (b"z", b"9"),
    ]  # fmt: skip


def prepared(keys: str = "abcdefgh") -> tuple[MemoryFileSystem, Replica, MergePlan]:
    """Returns a leader with a snapshot and some entries after it, and the plan for the next one."""
    disk = new_disk()
    replica, compactor = opened(disk)
    put(replica, *keys)
    snapshot(compactor)
    put(replica, "c", "x")
    replica.log.roll()
    put(replica, "y")
    replica.log.roll()
    return disk, replica, plan_of(replica)


def test_a_merge_whose_digest_differs_from_the_live_one_is_refused() -> None:
    disk, _, plan = prepared()
    wrong = MergePlan(
        directory=DIRECTORY, base=plan.base, snapshot=plan.snapshot, digest=1, merger=MERGER
    )

    with pytest.raises(StorageError, match="the digest of its rows differs"):
        merged_bytes(disk, wrong)


def test_a_merge_without_a_segment_of_the_suffix_is_refused() -> None:
    disk, replica, plan = prepared()
    for segment in replica.log.segments[:-1]:
        disk, replica, plan = prepared()
        if segment.base < plan.base.end:
            continue
        disk.unlink(segment.path)
        with pytest.raises(DamagedFile, match="are missing"):
            merged_bytes(disk, plan)


def test_no_damaged_byte_of_the_last_snapshot_gets_into_the_next_one() -> None:
    disk, replica, plan = prepared()
    path = replica.checkpoints.path(plan.base)
    for position in range(disk.size(path)):
        flip(disk, path, position)
        with pytest.raises(StorageError):
            merged_bytes(disk, plan)
        for name in disk.list(DIRECTORY):
            if name.endswith(PART):
                disk.unlink(f"{DIRECTORY}/{name}")
        flip(disk, path, position)
    merged_bytes(disk, plan)


def test_a_merge_without_a_snapshot_begins_with_the_whole_log() -> None:
    disk = new_disk()
    replica, _ = opened(disk, SETTINGS)
    put(replica, *"abc")
    replica.log.roll()
    plan = plan_of(replica)

    assert plan.base == EMPTY
    assert merged_bytes(disk, plan) == in_process_bytes(replica, plan)


def test_a_reader_finds_each_row_and_no_other() -> None:
    disk = new_disk()
    replica, compactor = opened(disk)
    random = Random(4)
    keys = [f"{random.randrange(1000):04d}" for _ in range(60)]
    put(replica, *keys)
    snapshot(compactor)
    file = disk.open(replica.checkpoints.path(replica.snapshot))
    reader = SnapshotReader(file, replica.snapshot)

    assert len(list(reader.rows())) == len(set(keys))
    for number in range(1000):
        key = f"{number:04d}"
        expected = f"value of {key}".encode() if key in keys else None
        assert reader.value_of(key.encode()) == expected
    assert (reader.value_of(b""), reader.value_of(b"zzz")) == (None, None)
    assert reader.check() == replica.checkpoints.verify(replica.snapshot)


def test_a_plan_survives_its_text() -> None:
    _, _, plan = prepared()

    assert MergePlan.from_json(plan.to_json()) == plan

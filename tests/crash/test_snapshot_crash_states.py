"""Crash at every operation on the disk while a snapshot of some logs is made, and while one is dropped.

Clients append meanwhile, logs roll, and a pass cleans one. After each operation the disk is taken as a
power cut may leave it (`tests/harness/memory_fs.py`). Then
    - the logs have everything that was acknowledged, and nothing that was never written;
    - a snapshot with a descriptor is whole: each log opens as after a clean stop, verifies, and has the
      records of the moment;
    - any other is listed as not complete, or not at all, and goes when it is dropped or at the start;
    - a snapshot that was complete before is complete after every later crash, until it is dropped.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from random import Random

import pytest

from cleaner.pacing.meter import CleaningAborted
from protocol.wire.numbers import Offset
from storage.files.errors import CutRefused, StorageError
from storage.files.paths import HASH_KEY
from storage.formats.log_identity import LogIdentity
from storage.formats.topic_partition import TopicPartition
from storage.log.linking import LinkedLog
from storage.log.log import PartitionLog
from storage.log.opening import create_log, open_log
from storage.snapshots.cut_at_time import cut_back
from storage.snapshots.descriptor import (
    DirectoryInSnapshot,
    PartitionInSnapshot,
    SnapshotDescriptor,
    TopicInSnapshot,
)
from storage.snapshots.snapshot_files import SnapshotFiles
from tests.harness.compacted_log import CONFIG, CompactedLog, identity, opening, records_of
from tests.harness.kept_moment import begin_moment
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.harness.open_transactions import end_transaction, in_transaction
from tests.harness.snapshot_on_disk import Logs, committed_values, opened_snapshot

DISKS = ("disk1", "disk2")
METADATA = "disk2"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SETTINGS = dataclasses.replace(CONFIG, segment_bytes=400)
SEEDS = 40 if "KOMPAKT_SOAK" in os.environ else 4
LOSSES = (Loss.NOTHING, Loss.EVERYTHING, Loss.TORN, Loss.TORN)
Values = list[bytes | None]


class Log(CompactedLog):
    """One of the logs, on a disk that they share."""

    def __init__(self, fs: MemoryFileSystem, number: int) -> None:
        super().__init__(SETTINGS)
        self.fs = fs
        self.identity = its_identity(number)
        self.log = create_log(fs, self.identity, SETTINGS, opening())
        self.acknowledged: dict[bytes, bytes] = {}
        """The last acknowledged value of each key, without transactions."""
        self.written: set[bytes | None] = set()

    def write(self, key: bytes, value: bytes) -> None:
        self.written.add(value)
        # A crash may leave either value from now on.
        self.acknowledged.pop(key, None)
        self.append((key, value))
        self.acknowledged[key] = value


def its_identity(number: int) -> LogIdentity:
    disk = DISKS[number % len(DISKS)]
    return dataclasses.replace(
        identity(),
        topic_partition=TopicPartition("orders", number),
        directory=f"{disk}/orders.{TOPIC_ID}/{number}",
        directory_id=directory_id(disk),
    )


def directory_id(disk: str) -> str:
    return f"AAAAAAAAAAAAAAAAAAAAA{disk[-1]}"


class SnapshotSweep:
    """Logs, their snapshots, and what a crash may leave of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fs = MemoryFileSystem()
        for disk in DISKS:
            self.fs.make_directory(disk)
            self.fs.write_bytes(f"{disk}/{HASH_KEY}", identity().hash_key)
        self.logs = [Log(self.fs, number) for number in range(3)]
        self.files = SnapshotFiles(self.fs, DISKS, metadata_directory=METADATA)
        self.at_moment: dict[str, list[Values]] = {}
        """By snapshot, the last committed value of each key, for each log."""
        self.complete: set[str] = set()
        self.states = 0
        self.seen_complete = 0
        self.number = 0
        for log in self.logs:
            for _ in range(4):
                self.append(log)
        self.fs.sync_all("/")
        self.fs.on_operation = lambda _action, _path: self.crash()

    # ---------------------------------------------------------------- the work

    def append(self, log: Log) -> None:
        self.number += 1
        log.write(b"k%d" % self.random.randrange(3), b"%d" % self.number * 15)

    def some_work(self) -> None:
        """What clients, clocks and the cleaner do in between."""
        log = self.random.choice(self.logs)
        kind = self.random.randrange(6)
        if kind == 0:
            log.roll()
        elif kind == 1:
            log.roll()
            plan = log.plan()
            try:
                log.execute(plan)
            except CleaningAborted:
                return
        else:
            self.append(log)

    def make(self, snapshot_id: str) -> None:
        self.files.begin(snapshot_id)
        self.some_work()
        undecided = b"open in %s" % snapshot_id.encode()
        self.logs[0].written.add(undecided)
        # Once it is committed, it outranks an earlier value of the key.
        self.logs[0].acknowledged.pop(b"k0", None)
        in_transaction(self.logs[0], 7, (b"k0", undecided))
        self.at_moment[snapshot_id] = [latest(log.log) for log in self.logs]
        begin_moment(*(log.log for log in self.logs))
        ends = [log.log.log_end_offset for log in self.logs]
        self.some_work()
        end_transaction(self.logs[0], 7, is_commit=True)
        linked = [self.link(log, snapshot_id) for log in self.logs]
        assert [each.end_offset for each in linked] == ends
        self.files.finish(described(snapshot_id, linked))
        self.complete.add(snapshot_id)
        self.some_work()

    def make_earlier(self, snapshot_id: str) -> None:
        """Make a snapshot of what the logs were before some work, unless a pass has used that."""
        ends = [log.log.log_end_offset for log in self.logs]
        self.at_moment[snapshot_id] = [latest(log.log) for log in self.logs]
        self.some_work()
        self.files.begin(snapshot_id)
        begin_moment(*(log.log for log in self.logs))
        try:
            linked = [
                self.link_back(log, snapshot_id, end)
                for log, end in zip(self.logs, ends, strict=True)
            ]
        except CutRefused:
            self.files.abandon(snapshot_id)
            return
        self.files.finish(described(snapshot_id, linked, at_ms=0))
        self.complete.add(snapshot_id)
        self.some_work()

    def link_back(self, log: Log, snapshot_id: str, end_offset: Offset) -> LinkedLog:
        self.link(log, snapshot_id)
        disk, _, rest = log.identity.directory.partition("/")
        its = dataclasses.replace(
            log.identity, directory=f"{self.files.unfinished(disk, snapshot_id)}/{rest}"
        )
        copy = open_log(self.fs, its, SETTINGS, opening(is_clean=True))
        cut_back(copy, end_offset, 0)
        copy.close()
        return LinkedLog(
            start_offset=copy.log_start_offset,
            end_offset=copy.log_end_offset,
            last_stable_offset=copy.last_stable_offset,
            size_bytes=copy.size_bytes,
        )

    def link(self, log: Log, snapshot_id: str) -> LinkedLog:
        self.some_work()
        log.log.take_moment(log.now_ms)
        disk, _, rest = log.identity.directory.partition("/")
        linked = log.log.link_moment(f"{self.files.unfinished(disk, snapshot_id)}/{rest}")
        log.log.end_moment()
        return linked

    def drop(self, snapshot_id: str) -> None:
        self.complete.discard(snapshot_id)
        assert self.files.drop(snapshot_id)
        self.some_work()

    # ---------------------------------------------------------------- what a crash leaves

    def crash(self) -> None:
        for loss in LOSSES:
            self.states += 1
            left = self.fs.after_crash(loss, self.random)
            self.check_snapshots(left)
            self.check_logs(left)

    def check_snapshots(self, left: MemoryFileSystem) -> None:
        files = SnapshotFiles(left, DISKS, metadata_directory=METADATA)
        files.remove_unfinished()
        found = {each.id: each.descriptor for each in files.all()}
        for snapshot_id in self.complete:
            assert found.get(snapshot_id) is not None, f"{snapshot_id} is gone"
        for snapshot_id, descriptor in found.items():
            if descriptor is None:
                assert files.drop(snapshot_id)
            else:
                self.check_complete(left, descriptor)
        again = left.after_crash(Loss.EVERYTHING, self.random)
        listed = SnapshotFiles(again, DISKS, metadata_directory=METADATA).all()
        assert {each.id for each in listed} == {key for key, its in found.items() if its}
        assert all(each.descriptor is not None for each in listed)

    def check_complete(self, left: MemoryFileSystem, descriptor: SnapshotDescriptor) -> None:
        self.seen_complete += 1
        logs: Logs = {}
        for disk in DISKS:
            part = only_on(disk, descriptor)
            logs = {**logs, **opened_snapshot(part, disk, fs=left)}
        copies = [logs["orders", number] for number in range(len(self.logs))]
        assert [latest(copy) for copy in copies] == self.at_moment[descriptor.id]

    def check_logs(self, left: MemoryFileSystem) -> None:
        for log in self.logs:
            recovered = open_log(left, log.identity, SETTINGS, opening(leader_epoch=9))
            values = {each.value for each in records_of(recovered)}
            assert set(committed_values(recovered)) <= log.written
            # Not all: a later value of the key may have let a pass remove an earlier one.
            assert set(log.acknowledged.values()) <= values


def latest(log: PartitionLog) -> Values:
    """Returns the last committed value of each key, in the order of the keys."""
    committed = committed_values(log)
    last = {each.key: each.value for each in records_of(log) if each.value in committed}
    return [last[key] for key in sorted(last, key=str)]


def described(
    snapshot_id: str, linked: Sequence[LinkedLog], at_ms: int | None = None
) -> SnapshotDescriptor:
    return SnapshotDescriptor(
        id=snapshot_id,
        created_ms=1,
        at_ms=at_ms,
        cluster_id="c",
        node_id=1,
        directories=[
            DirectoryInSnapshot(
                id=directory_id(disk), path=f"/{disk}", has_metadata=disk == METADATA
            )
            for disk in DISKS
        ],
        topics=[
            TopicInSnapshot(
                name="orders",
                id=TOPIC_ID,
                partitions=[
                    PartitionInSnapshot(
                        partition=number,
                        directory=its_identity(number).directory_id,
                        start_offset=each.start_offset,
                        end_offset=each.end_offset,
                        bytes=each.size_bytes,
                    )
                    for number, each in enumerate(linked)
                ],
            )
        ],
        cluster={},
        node={},
    )


def only_on(disk: str, descriptor: SnapshotDescriptor) -> SnapshotDescriptor:
    """Returns the descriptor with the logs of one disk only."""
    topics = [
        TopicInSnapshot(
            name=topic.name,
            id=topic.id,
            partitions=[each for each in topic.partitions if each.directory == directory_id(disk)],
        )
        for topic in descriptor.topics
    ]
    return SnapshotDescriptor(
        id=descriptor.id,
        created_ms=descriptor.created_ms,
        at_ms=descriptor.at_ms,
        cluster_id=descriptor.cluster_id,
        node_id=descriptor.node_id,
        directories=descriptor.directories,
        topics=topics,
        cluster={},
        node={},
    )


def played(seed: int) -> SnapshotSweep:
    sweep = SnapshotSweep(seed)
    sweep.make("s1")
    sweep.make("s2")
    sweep.drop("s1")
    sweep.make_earlier("s3")
    assert sweep.files.pinned().alone.keys() == sweep.complete
    return sweep


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        played(seed)


@cache
def unspoilt(seed: int) -> SnapshotSweep:
    """Returns what was played of a seed, without bugs put in on purpose; it takes seconds."""
    return played(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_crash_leaves_whole_snapshots_or_none_and_every_acknowledged_record(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = unspoilt(seed)
    with capsys.disabled():
        sys.stdout.write(f"\n{sweep.states} crash states, {sweep.seen_complete} whole snapshots\n")
    assert sweep.states > 400
    assert sweep.seen_complete > 100


def test_some_crashes_meet_a_snapshot_of_an_earlier_time() -> None:
    assert any("s3" in unspoilt(seed).complete for seed in range(4))


# ---------------------------------------------------------------- bugs put in on purpose


def descriptor_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    sync_all = MemoryFileSystem.sync_all

    def careless(fs: MemoryFileSystem, path: str) -> None:
        if path not in DISKS:
            sync_all(fs, path)

    patch.setattr(MemoryFileSystem, "sync_all", careless)


def files_removed_before_the_descriptor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SnapshotFiles, "_make_incomplete", lambda self, _id: None)


def passes_see_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("storage.log.cleaning_view.min", max, raising=False)


FIRST_SEEDS: Mapping[Callable[[pytest.MonkeyPatch], None], int] = {
    descriptor_before_the_sync: 0,
    files_removed_before_the_descriptor: 2,
    passes_see_everything: 3,
}
"""The bugs, and a seed that found each when this was written: those before it take long, in vain."""


@pytest.mark.parametrize("plant", FIRST_SEEDS)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, StorageError)):
        play_all(range(FIRST_SEEDS[plant], 40))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_crash_while_a_log_is_truncated_below_a_snapshot_leaves_that_whole(seed: int) -> None:
    sweep = SnapshotSweep(seed)
    sweep.fs.on_operation = None
    sweep.make("s1")
    log = sweep.logs[seed % len(sweep.logs)]
    segments = log.log.segments
    cut = Offset(Random(seed).randrange(segments[0].base_offset + 1, log.log.log_end_offset))
    before = [each.offset for each in records_of(log.log)]
    after = [offset for offset in before if offset < cut]
    seen: set[int] = set()

    def crash(_action: str, _path: str) -> None:
        for loss in LOSSES:
            left = sweep.fs.after_crash(loss, sweep.random)
            sweep.check_snapshots(left)
            recovered = open_log(left, log.identity, SETTINGS, opening(leader_epoch=9))
            offsets = [each.offset for each in records_of(recovered)]
            assert offsets in (before, after)
            seen.add(len(offsets))

    sweep.fs.on_operation = crash
    log.log.truncate_to(cut)
    sweep.fs.on_operation = None
    assert seen == {len(before), len(after)}
    again = sweep.fs.after_crash(Loss.EVERYTHING, sweep.random)
    sweep.check_snapshots(again)

"""Through starts, copies, cuts, promotions and restored directories the epochs of a log's batches never
fall, and its leader epoch is above all that other leaders have used.
"""

from __future__ import annotations

import os
import uuid
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.wire.numbers import Epoch, Offset
from storage.files.paths import LOG
from storage.formats.meta_properties import MetaProperties
from storage.formats.topic_partition import TopicPartition
from storage.log.appender import Appended
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of, headers_in, run_of, valid
from tests.harness.log_home import SMALL, Deferred
from tests.harness.memory_fs import Loss, MemoryFileSystem

META = MetaProperties(cluster_id="c" * 22, node_id=1, directory_id="d" * 22)
TOPIC_ID = uuid.UUID(int=3)
PARTITION = TopicPartition("orders", 0)
PAIRS = [(b"k", bytes(60))]


class Replica:
    """A broker's directory with one log, which is a mirror or leads."""

    def __init__(self, disk: MemoryFileSystem, *, is_new: bool = False) -> None:
        """Start on what a stop, a crash or a backup has left, or on a new disk."""
        self.disk = disk
        self.directory = LogDirectory(
            disk,
            "/data",
            META,
            background=Deferred(),
            now_ms=lambda: 0,
            random_bytes=lambda size: b"k" * size,
        )
        if is_new:
            (self.log,) = self.directory.create_logs("orders", TOPIC_ID, SMALL, [0])
            self.log.sync()
        else:
            self.log = self.directory.open_log(PARTITION, TOPIC_ID, SMALL)

    def copy(self, epochs: list[int]) -> None:
        """Append a run of one batch of each epoch, as a mirror does."""
        end = self.log.log_end_offset
        run = run_of(
            *[
                batch_of(PAIRS, base_offset=end + at, leader_epoch=epoch)
                for at, epoch in enumerate(epochs)
            ]
        )
        if run.last_epoch >= self.log.leader_epoch:
            self.lead_above(run.last_epoch)
        self.log.appender.append_as_follower(run, now_ms=0)

    def lead_above(self, epoch: Epoch) -> None:
        self.directory.raise_epoch(epoch)
        self.log.lead_above(epoch)

    def write(self) -> None:
        """Append a batch as the leader."""
        assert isinstance(
            self.log.appender.append_as_leader(valid(batch_of(PAIRS)), now_ms=0), Appended
        )


def epochs_in(log: PartitionLog) -> list[int]:
    """Returns the epoch of each batch."""
    files = [log._fs.read_bytes(segment.path(LOG)) for segment in log.segments]
    return [header.leader_epoch for header in headers_in(b"".join(files))]


class EpochMachine(RuleBasedStateMachine):
    """`led` and `copied` are the largest epochs that this directory has stamped, and has copied."""

    @initialize()
    def begin(self) -> None:
        self.replica = Replica(MemoryFileSystem(), is_new=True)
        self.led = self.copied = -1
        self.is_mirror = True
        self.backup: tuple[MemoryFileSystem, int, int, bool] | None = None

    @precondition(lambda self: self.is_mirror)
    @rule(steps=st.lists(st.sampled_from([0, 0, 0, 1, 2, 40]), min_size=1, max_size=4))
    def copy(self, steps: list[int]) -> None:
        epoch, epochs = max(0, self.replica.log.epochs.latest), []
        for step in steps:
            epoch += step
            epochs.append(epoch)
        self.replica.copy(epochs)
        self.copied = max(self.copied, epoch)

    @precondition(lambda self: self.is_mirror)
    @rule(back=st.integers(0, 5))
    def cut(self, back: int) -> None:
        log = self.replica.log
        log.truncate_to(Offset(max(log.log_start_offset, log.log_end_offset - back)))

    @precondition(lambda self: self.is_mirror)
    @rule()
    def promote(self) -> None:
        self.is_mirror = False
        self.write()

    @precondition(lambda self: not self.is_mirror)
    @rule()
    def write(self) -> None:
        self.replica.write()
        self.led = max(self.led, self.replica.log.leader_epoch)

    @precondition(lambda self: not self.is_mirror)
    @rule()
    def become_a_mirror(self) -> None:
        self.is_mirror = True

    @rule()
    def sync(self) -> None:
        self.replica.log.sync()

    @rule(loss=st.sampled_from(Loss), seed=st.integers(0, 99))
    def crash(self, loss: Loss, seed: int) -> None:
        self._start(self.replica.disk.after_crash(loss, Random(seed)))

    @rule()
    def stop(self) -> None:
        self.replica.log.close()
        self.replica.directory.close()
        self._start(self.replica.disk.after_crash(Loss.EVERYTHING, Random(0)))

    def _start(self, disk: MemoryFileSystem) -> None:
        self.replica = Replica(disk)
        assert self.replica.log.leader_epoch > max(self.led, self.copied), (
            "an epoch has two leaders"
        )

    @rule()
    def back_up(self) -> None:
        self.replica.log.sync()
        disk = self.replica.disk.after_crash(Loss.NOTHING, Random(0))
        self.backup = disk, self.led, self.copied, self.is_mirror

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore(self) -> None:
        """Go back to a backup: what came after it never was."""
        assert self.backup is not None
        disk, self.led, self.copied, self.is_mirror = self.backup
        self._start(disk.after_crash(Loss.NOTHING, Random(0)))

    @invariant()
    def epochs_never_fall(self) -> None:
        if not hasattr(self, "replica"):
            return
        log, found = self.replica.log, epochs_in(self.replica.log)
        assert found == sorted(found)
        assert log.leader_epoch >= max(found, default=-1)
        assert log.leader_epoch > self.copied
        assert log.epochs.latest == max(found, default=-1)


EpochMachine.TestCase.settings = settings(
    max_examples=2000 if "KOMPAKT_SOAK" in os.environ else 60,
    stateful_step_count=40,
    deadline=None,
)
TestEpochs = EpochMachine.TestCase


@pytest.mark.parametrize("loss", list(Loss))
def test_crash_at_any_moment_of_a_raise_leaves_no_epoch_for_a_second_leader(loss: Loss) -> None:
    """Copy two epochs, lead above them, and lose power after each operation of the disk."""
    replica = Replica(MemoryFileSystem(), is_new=True)
    crashes: list[tuple[str, MemoryFileSystem, int]] = []

    def crash(action: str, path: str) -> None:
        left = replica.disk.after_crash(loss, Random(len(crashes)))
        crashes.append((f"{action} {path}", left, replica.log.leader_epoch))

    replica.disk.on_operation = crash
    replica.copy([3, 9])
    replica.log.sync()
    replica.copy([9, 9, 40])
    replica.write()
    replica.log.sync()
    replica.disk.on_operation = None

    assert len(crashes) > 10
    for what, left, led in crashes:
        after = Replica(left)
        found = epochs_in(after.log)
        assert after.log.leader_epoch > max([led, *found]) or not found, what
        assert found == sorted(found), what

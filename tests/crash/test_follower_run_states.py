"""A crash at any moment of a follower's appends leaves a whole number of batches, and their states."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from protocol.wire.numbers import Epoch, Offset
from storage.log.log import PartitionLog
from tests.harness.log_builder import headers_in, run_of
from tests.harness.log_home import SMALL, Deferred, LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem
from tests.properties.test_follower_runs import EPOCH, Source

SEEDS = 40 if "KOMPAKT_SOAK" in os.environ else 4
CONFIG = replace(SMALL, segment_bytes=500)


class History:
    """Runs that are appended and synced, and the disks that a crash after each operation leaves."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._source = Source(Random(seed))
        self._background = Deferred(inline=False)
        self.home = LogHome(MemoryFileSystem(), config=CONFIG, background=self._background)
        self.log = self.home.create(epoch=EPOCH)
        self.batches: list[bytes] = []
        """All batches, in order, as far as their appends have begun."""
        self.synced_end = 0
        self.crashes: list[tuple[str, MemoryFileSystem, int]] = []
        """What was done last, the disk, and the end that must be there."""

    def play(self) -> None:
        disk = self.home.fs
        assert isinstance(disk, MemoryFileSystem)
        disk.on_operation = self._crash
        for _ in range(8):
            batches = [bytes(self._source.batch()) for _ in range(self._random.randrange(1, 9))]
            self.batches += batches
            self.log.appender.append_as_follower(run_of(*batches), now_ms=0)
            if self._random.random() < 0.5:
                self.synced_end = self.log.sync()
                self.log.advance_high_watermark(Offset(self.synced_end))
            if self._random.random() < 0.5:
                self._background.run_all()

    def _crash(self, action: str, path: str) -> None:
        disk = self.home.fs
        assert isinstance(disk, MemoryFileSystem)
        loss = self._random.choice(tuple(Loss))
        left = disk.after_crash(loss, self._random)
        self.crashes.append((f"{loss.name} lost after {action} {path}", left, self.synced_end))

    def batches_up_to(self, end: int) -> list[bytes]:
        """Returns the batches of a log that ends there; it must end with a batch."""
        found, last = [], 0
        for batch in self.batches:
            (header,) = headers_in(batch)
            if header.next_offset <= end:
                found.append(batch)
                last = header.next_offset
        assert last in (end, 0), "the log ends within a batch"
        return found


def states(log: PartitionLog) -> dict[str, Any]:
    """Returns what a log knows beside its batches, except the times of appends."""
    return {
        "end": log.log_end_offset,
        "producers": [
            (key, replace(each, last_timestamp=0)) for key, each in log.producers.items()
        ],
        "epochs": log.epochs.entries,
        "aborted": log._states.aborted.rows,
        "stable": log.last_stable_offset,
    }


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(SEEDS))
def test_crash_at_any_moment_leaves_the_first_batches_and_their_states(seed: int) -> None:
    history = History(seed)
    history.play()

    assert len(history.crashes) > 20
    for what, left, end_min in history.crashes:
        log = LogHome(left, config=CONFIG).open(epoch=EPOCH + 1)
        assert log.log_end_offset >= end_min, what
        whole = LogHome(MemoryFileSystem(), config=CONFIG).create(epoch=EPOCH + 1)
        batches = history.batches_up_to(log.log_end_offset)
        if batches:
            whole.appender.append_as_follower(run_of(*batches), now_ms=0)
        whole.advance_high_watermark(whole.sync())
        assert states(log) == states(whole), what
        assert log.leader_epoch > max(log.epochs.latest, Epoch(0))

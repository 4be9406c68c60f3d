"""The cleaner's output is written back while it is produced; a failure leaves nothing behind."""

from __future__ import annotations

import errno

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import DiskError
from storage.segment.cleaned_segment import (
    WRITE_BACK_BEHIND_BYTES,
    WRITE_BACK_BYTES,
    CleanedSegmentWriter,
)
from tests.harness.compacted_log import SETTINGS, CompactedLog
from tests.harness.faults import Faults
from tests.harness.memory_fs import MemoryFileSystem

NO_ENTRIES = memoryview(b"").cast("q")
MIB = 1 << 20


class Recorder(Faults):
    """A disk without faults that records how much write-back was started and how much awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.given = self.waited = self.syncs = 0
        self.behind_max = 0

    def check(self, action: str, path: str, size: int = 0) -> None:
        self.given += size if action == "begin write back" else 0
        self.waited += size if action == "write back" else 0
        self.syncs += action == "sync"
        self.behind_max = max(self.behind_max, self.given - self.waited)


@pytest.mark.parametrize(
    "piece", [1000, MIB - 1, MIB, 5 * MIB + 3], ids=lambda size: f"{size}_bytes"
)
def test_the_disk_gets_the_output_as_it_comes_and_is_never_far_behind(piece: int) -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/log")
    writer = CleanedSegmentWriter(disk, "/log", Offset(0), 1, bytes(16))
    disk.faults = recorder = Recorder()

    while writer.size < 11 * MIB:
        writer.append(bytes(piece), NO_ENTRIES)
        assert writer.size - recorder.given < WRITE_BACK_BYTES

    assert recorder.behind_max <= WRITE_BACK_BEHIND_BYTES + WRITE_BACK_BYTES
    assert recorder.given - recorder.waited <= WRITE_BACK_BEHIND_BYTES
    assert recorder.syncs == 0


@pytest.mark.parametrize("action", ["begin write back", "write back"])
def test_a_pass_whose_output_cannot_be_written_back_replaces_nothing(action: str) -> None:
    log = CompactedLog(settings=SETTINGS)
    for number in range(8):
        log.append((b"%d" % number, bytes(MIB)), (b"dead", b"1"))
    log.roll()
    before = log.records()
    log.fs.faults.fail(action, errno.EIO, path=".log.cleaned")

    with pytest.raises(DiskError, match=action):
        log.execute(log.plan())

    assert log.records() == before
    assert not [name for name in log.files() if name.endswith(".cleaned")]
    assert log.log.offline_reason is None
    log.clean()
    assert len(log.records()) == 9

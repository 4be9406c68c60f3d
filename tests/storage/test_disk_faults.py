"""How a log reacts to disk faults: docs/design/log-engine.md, "When the disk fails", row by row.

`tests/crash/test_disk_fault_states.py` fails any operation of random histories, and
`tests/server/test_disk_faults.py` shows the answers that clients get.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from storage.files.errors import CorruptLog, DiskError, LogOffline, MissingFile, NoSpace, SyncFailed
from storage.files.local_files import LocalFileSystem
from storage.files.paths import OFFSET_INDEX, TIME_INDEX
from storage.formats.manifest import decode
from storage.log.appender import Appended
from tests.harness.faults import FOR_EVER
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

MANIFEST = "/data/orders/0/manifest"


class Machine:
    """A log on a disk that can fail."""

    def __init__(self, *, background: Deferred | None = None) -> None:
        self.disk = MemoryFileSystem()
        self.home = LogHome(self.disk, background=background)
        self.log = self.home.create()
        self.faults = self.disk.faults

    def append(self) -> None:
        batch = batch_of([(b"key", bytes(40))])
        assert isinstance(self.log.appender.append_as_leader(valid(batch), now_ms=0), Appended)

    def append_for_ever(self) -> None:
        while True:
            self.append()

    def checkpoint(self) -> None:
        work = self.log.checkpoint(grown_bytes_min=1)
        assert work is not None
        work()

    def sync(self) -> None:
        self.log.advance_high_watermark(self.log.sync())

    def offsets(self) -> list[int]:
        return [record.offset for record in read_all(self.log)]

    def offsets_after(self, loss: Loss) -> list[int]:
        """Returns the machine after a power cut now."""
        home = LogHome(self.disk.after_crash(loss, Random(0)))
        return [record.offset for record in read_all(home.open())]

    def assert_offline(self) -> None:
        assert self.log.offline_reason is not None
        assert self.home.failures
        with pytest.raises(LogOffline):
            self.append()
        with pytest.raises(LogOffline):
            read_all(self.log)

    def assert_serves(self) -> None:
        self.append()
        self.sync()
        assert self.offsets() == list(range(self.log.log_end_offset))
        assert self.log.offline_reason is None


@pytest.fixture
def machine() -> Machine:
    """A log with two acknowledged batches."""
    machine = Machine()
    machine.append()
    machine.append()
    machine.sync()
    return machine


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_append_that_fails_is_refused_and_the_log_serves_on(machine: Machine, number: int) -> None:
    size = machine.log.size_bytes
    machine.faults.fail("append to", number, times=3)

    for _ in range(3):
        with pytest.raises(DiskError):
            machine.append()
        assert (machine.log.log_end_offset, machine.log.size_bytes) == (2, size)
        assert machine.offsets() == [0, 1]

    machine.assert_serves()
    assert machine.offsets_after(Loss.EVERYTHING) == [0, 1, 2]


@pytest.mark.parametrize("kind", [OFFSET_INDEX, TIME_INDEX])
def test_append_after_a_start_that_cannot_read_an_index_leaves_nothing_in_the_file(
    machine: Machine, kind: str
) -> None:
    """Otherwise the next append would follow it with the same offset, unnoticed."""
    machine.log.close()
    machine.log = machine.home.open(is_clean=True)
    machine.append()
    size = machine.log.size_bytes
    machine.faults.fail("read", errno.EIO, path=kind)

    with pytest.raises(DiskError):
        machine.append()
    assert (machine.log.log_end_offset, machine.log.size_bytes) == (3, size)

    machine.assert_serves()
    assert machine.offsets_after(Loss.EVERYTHING) == [0, 1, 2, 3]


@pytest.mark.parametrize("loss", Loss)
def test_no_crash_makes_a_record_of_a_refused_append(machine: Machine, loss: Loss) -> None:
    machine.faults.fail("append to", errno.ENOSPC)
    with pytest.raises(NoSpace):
        machine.append()

    assert machine.offsets_after(loss) == [0, 1]


def test_full_disk_takes_appends_again_once_there_is_space(machine: Machine) -> None:
    machine.faults.space = 250
    with pytest.raises(NoSpace):
        machine.append_for_ever()
    machine.sync()
    there = machine.log.log_end_offset
    assert there > 2
    assert machine.offsets() == list(range(there))

    machine.faults.space = None
    machine.assert_serves()
    assert machine.offsets_after(Loss.EVERYTHING) == list(range(there + 1))


@pytest.mark.parametrize("action", ["write", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_commit_that_lacks_space_is_put_off(machine: Machine, action: str, number: int) -> None:
    before = machine.disk.read_bytes(MANIFEST)
    machine.faults.fail(action, number, path="manifest.tmp")

    machine.log.roll(0)

    assert machine.disk.read_bytes(MANIFEST) == before
    machine.assert_serves()
    assert machine.offsets_after(Loss.EVERYTHING) == [0, 1, 2]
    machine.log.roll(0)
    assert len(decode(machine.disk.read_bytes(MANIFEST), "m").segments) == 3


def test_roll_that_lacks_space_refuses_the_append_and_nothing_else(machine: Machine) -> None:
    machine.faults.fail("open", errno.ENOSPC)
    with pytest.raises(NoSpace):
        machine.log.roll(0)
    machine.assert_serves()


def test_checkpoint_that_lacks_space_is_put_off(machine: Machine) -> None:
    before = machine.disk.read_bytes(MANIFEST)
    machine.faults.fail("write", errno.ENOSPC)
    machine.checkpoint()
    assert machine.disk.read_bytes(MANIFEST) == before
    machine.assert_serves()
    machine.checkpoint()
    assert decode(machine.disk.read_bytes(MANIFEST), "m").segments[-1].end_offset == 3


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_sync_that_fails_is_final_and_acknowledges_nothing(machine: Machine, number: int) -> None:
    machine.append()
    machine.faults.fail("sync", number)

    with pytest.raises(SyncFailed):
        machine.sync()

    assert machine.log.high_watermark == 2
    machine.assert_offline()
    assert machine.offsets_after(Loss.NOTHING) == [0, 1]


def test_sync_that_fails_in_a_commit_is_final_too(machine: Machine) -> None:
    machine.faults.fail("sync", errno.EIO, path="manifest.tmp")
    machine.log.roll(0)
    machine.assert_offline()
    assert machine.offsets_after(Loss.EVERYTHING) == [0, 1]


def test_read_that_fails_is_an_error_for_that_request_only(machine: Machine) -> None:
    machine.faults.fail("read", errno.EIO, times=2)
    for _ in range(2):
        with pytest.raises(DiskError):
            machine.offsets()
    assert machine.home.failures == []
    machine.assert_serves()


def test_batch_that_is_not_sound_hides_only_itself() -> None:
    machine = Machine()
    for _ in range(3):
        machine.append()
        machine.log.roll(0)
    machine.sync()
    first = machine.log.segments[0].path(".log")
    machine.disk.overwrite(first, 0, bytes(16))

    with pytest.raises(CorruptLog):
        machine.log.reader.read(0, max_bytes=1, whole_first_batch=True, isolation=0)  # type: ignore[arg-type]
    result = machine.log.reader.read(1, max_bytes=1, whole_first_batch=True, isolation=0)  # type: ignore[arg-type]
    assert not isinstance(result, int)
    assert result.regions
    assert machine.log.offline_reason is None


def test_read_only_directory_takes_the_log_offline_at_the_first_name(machine: Machine) -> None:
    machine.faults.is_read_only = True
    with pytest.raises(DiskError):
        machine.append()
    assert machine.offsets() == [0, 1]

    with pytest.raises(DiskError):
        machine.log.roll(0)

    machine.assert_offline()
    assert machine.offsets_after(Loss.EVERYTHING) == [0, 1]


def test_vanished_directory_takes_the_log_offline_at_the_first_name(machine: Machine) -> None:
    machine.disk.vanish("/data/orders/0")
    machine.append()
    assert machine.offsets() == [0, 1]

    with pytest.raises(MissingFile):
        machine.log.roll(0)

    machine.assert_offline()


def test_log_that_cannot_be_read_at_the_start_is_left_as_it_is(machine: Machine) -> None:
    before = {
        name: machine.disk.read_bytes(f"/data/orders/0/{name}")
        for name in machine.disk.list("/data/orders/0")
    }
    machine.faults.fail("read", errno.EIO, path=".log", times=FOR_EVER)

    with pytest.raises(DiskError):
        machine.home.open()

    machine.faults.heal()
    after = {name: machine.disk.read_bytes(f"/data/orders/0/{name}") for name in before}
    assert after == before
    machine.log = machine.home.open()
    assert machine.offsets() == [0, 1]


def test_rename_that_lacks_space_after_a_commit_is_no_shortage() -> None:
    """The manifest already lists the cleaned files: later commits would then list missing files."""
    from tests.crash.workload import Workload

    work = Workload(1, lambda _action, _path: None)
    while work.planned is None:
        work.append()
        work.roll()
        work.sync()
        work.plan_pass()
    work.disk.faults.fail("rename", errno.ENOSPC, path=".cleaned")

    with pytest.raises(DiskError):
        work.commit_pass()

    assert work.log.offline_reason is not None
    recovered = LogHome(work.disk.after_crash(Loss.NOTHING, Random(0))).open()
    assert recovered.log_end_offset == work.synced_end


def test_what_the_page_cache_calls_clean_after_a_failed_sync_is_read_from_the_disk_again(
    tmp_path: Path,
) -> None:
    """The real call: the written bytes are still there, because the disk has not failed."""
    file = LocalFileSystem().open(str(tmp_path / "f"), create=True)
    file.append([b"x" * 10_000])
    LocalFileSystem().forget_cached(str(tmp_path))
    assert file.read_at(0, 10_000) == b"x" * 10_000

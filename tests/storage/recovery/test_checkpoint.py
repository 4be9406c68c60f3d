"""A checkpoint moves the recovery point, and recovery finds the whole log even while it changes."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from random import Random

import pytest

from protocol.wire.numbers import Epoch, Offset
from storage.files.errors import CorruptLog
from storage.files.paths import LOG, OFFSET_INDEX, TIME_INDEX
from storage.formats.manifest import UNKNOWN, SegmentRow, decode
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.state.producer_state import Duplicate
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import SMALL, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

DIRECTORY = "/data/orders/0"
BATCH_BYTES = 111
ROOMY = dataclasses.replace(SMALL, segment_bytes=10_000, index_interval_bytes=200)


class Machine:
    """A log that one idempotent producer writes to, a batch of one record at a time."""

    def __init__(self) -> None:
        self.disk = MemoryFileSystem()
        self.home = LogHome(self.disk, config=ROOMY)
        self.log = self.home.create()
        self.sequence = 0

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            outcome = self.log.appender.append_as_leader(
                valid(sent(self.sequence)), now_ms=self.sequence
            )
            assert isinstance(outcome, Appended)
            self.sequence += 1

    def take(self) -> Callable[[], None]:
        work = self.log.checkpoint(grown_bytes_min=1)
        assert work is not None
        return work

    def checkpoint(self) -> None:
        self.take()()

    def crash(self, loss: Loss = Loss.EVERYTHING) -> None:
        self.disk = self.home.fs = self.disk.after_crash(loss, Random(0))
        self.log = self.home.open()

    def offsets(self) -> list[int]:
        return [record.offset for record in read_all(self.log)]

    def last_row(self) -> SegmentRow:
        return decode(self.disk.read_bytes(f"{DIRECTORY}/manifest"), "m").segments[-1]

    def names(self, kind: str) -> list[str]:
        return [name for name in self.disk.list(DIRECTORY) if name.endswith(kind)]

    def path(self, kind: str) -> str:
        return f"{DIRECTORY}/{self.names(kind)[-1]}"

    def files(self) -> dict[str, bytes]:
        return {
            name: self.disk.read_bytes(f"{DIRECTORY}/{name}") for name in self.disk.list(DIRECTORY)
        }


def sent(sequence: int) -> bytearray:
    return batch_of(
        [(b"key", bytes(40))],
        timestamps=[1000 + sequence],
        producer_id=5,
        producer_epoch=0,
        base_sequence=sequence,
    )


def knows(log: PartitionLog, sequence: int) -> bool:
    return log.producers.check_append(valid(sent(sequence)).header) == Duplicate(
        Offset(sequence), Offset(sequence)
    )


def test_what_a_checkpoint_covers_survives_without_another_sync() -> None:
    machine = Machine()
    machine.append(4)
    machine.checkpoint()
    machine.append(1)

    machine.crash()

    assert machine.offsets() == [0, 1, 2, 3]
    assert knows(machine.log, 3)
    assert machine.log.reader.end_offset_for_epoch(Epoch(1)) == (1, 4)


def test_recovery_begins_at_the_recovery_point() -> None:
    machine = Machine()
    machine.append(3)
    machine.checkpoint()
    machine.append(2)
    machine.log.sync()
    # A scan from the start would take this damage for the end of the log.
    machine.disk.overwrite(machine.path(LOG), 70, b"\xff")
    before = machine.files()[machine.names(LOG)[0]]

    machine.crash()

    assert machine.log.log_end_offset == 5
    assert machine.files()[machine.names(LOG)[0]] == before
    (segment,) = machine.log.segments
    assert (segment.record_count, segment.size) == (5, len(before))
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (1004, 4)


def test_file_that_ends_before_the_recovery_point_is_corruption_and_nothing_is_removed() -> None:
    machine = Machine()
    machine.append(4)
    machine.checkpoint()
    machine.disk.open(machine.path(LOG)).truncate(300)
    before = machine.files()

    with pytest.raises(CorruptLog, match="the file ends there"):
        machine.home.open()

    assert machine.files() == before


def test_first_bad_batch_behind_the_recovery_point_ends_the_log() -> None:
    machine = Machine()
    machine.append(2)
    machine.checkpoint()
    point = machine.last_row().size
    machine.append(2)
    machine.log.sync()
    machine.disk.overwrite(machine.path(LOG), point + 70, b"\xff")

    machine.crash()

    assert machine.offsets() == [0, 1]
    assert "cut.2.0" in machine.files()
    assert knows(machine.log, 1)
    assert not knows(machine.log, 2)


@pytest.mark.parametrize("kind", [OFFSET_INDEX, TIME_INDEX])
@pytest.mark.parametrize("data", [None, b"", b"\0" * 24, b"\xff" * 7])
def test_damaged_index_entries_are_rebuilt_from_the_batches(kind: str, data: bytes | None) -> None:
    machine = Machine()
    machine.append(6)
    machine.checkpoint()
    if data is None:
        machine.disk.unlink(machine.path(kind))
    else:
        machine.disk.write_bytes(machine.path(kind), data)

    machine.crash(Loss.NOTHING)

    assert machine.offsets() == list(range(6))
    machine.append(2)
    machine.log.sync()
    machine.checkpoint()
    machine.crash()
    machine.log.advance_high_watermark(machine.log.sync())
    assert machine.offsets() == list(range(8))
    found = machine.log.reader.offset_for_timestamp(1007)
    assert found is not None
    assert found.offset == 7


def test_index_goes_on_as_if_nothing_had_happened() -> None:
    machine, undisturbed = Machine(), Machine()
    undisturbed.append(6)
    machine.append(3)
    machine.checkpoint()
    machine.append(2)
    machine.log.sync()
    machine.crash()
    machine.append(1)
    expected = undisturbed.log.segments[-1].index()
    assert len(expected) == 2, "and entries on both sides of the recovery point"
    assert machine.log.segments[-1].index().offset_file() == expected.offset_file()
    assert machine.log.segments[-1].index().time_file() == expected.time_file()


def test_entries_that_a_torn_checkpoint_left_behind_the_recovery_point_are_not_taken() -> None:
    machine = Machine()
    machine.append(4)
    machine.checkpoint()
    entries = machine.disk.read_bytes(machine.path(OFFSET_INDEX))
    assert entries
    machine.append(1)
    # Entries of batches that never reached the disk, and half an entry.
    machine.disk.write_bytes(machine.path(OFFSET_INDEX), entries + b"\0\0\0\x09\0\0\x09\0" + b"\1")

    machine.crash(Loss.NOTHING)
    machine.append(2)
    machine.log.roll(0)

    assert machine.offsets()[:5] == [0, 1, 2, 3, 4]
    written = machine.disk.read_bytes(f"{DIRECTORY}/{machine.names(OFFSET_INDEX)[0]}")
    assert written.startswith(entries)
    assert len(written) % 8 == 0
    assert b"\0\0\x09\0" not in written


def test_damaged_snapshot_is_made_good_by_an_older_one_and_the_batches() -> None:
    machine = Machine()
    machine.append(2)
    machine.checkpoint()
    machine.append(2)
    machine.checkpoint()
    newest = machine.names(".snapshot")[-1]
    machine.disk.overwrite(f"{DIRECTORY}/{newest}", 20, b"\xff")

    machine.crash()

    assert all(knows(machine.log, sequence) for sequence in range(4))


def test_lost_epoch_checkpoint_is_found_out_below_the_recovery_point_too() -> None:
    machine = Machine()
    machine.append(2)
    machine.checkpoint()
    machine.disk.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    machine.crash(Loss.NOTHING)
    assert machine.log.epochs.entries == ((1, 0),)


def test_checkpoints_leave_no_more_snapshots_than_recovery_needs() -> None:
    machine = Machine()
    for _ in range(5):
        machine.append()
        machine.checkpoint()
    assert [int(name[:20]) for name in machine.names(".snapshot")] == [4, 5]


# ---------------------------------------------------------------- what comes between


def test_roll_before_the_commit_is_listed_and_the_older_row_forgotten() -> None:
    machine = Machine()
    machine.append(3)
    work = machine.take()
    machine.append(1)
    machine.log.roll(0)
    machine.append(1)
    work()
    assert machine.last_row().size == UNKNOWN
    machine.log.sync()
    machine.crash()
    assert machine.offsets() == [0, 1, 2, 3, 4]


def test_roll_whose_own_commit_is_still_to_come_is_adopted_behind_the_recovery_point() -> None:
    machine = Machine()
    machine.home.background.inline = False
    machine.append(3)
    work = machine.take()
    original = machine.disk.write_bytes

    def roll_meanwhile(path: str, data: bytes) -> None:
        if path.endswith("manifest.tmp") and len(machine.log.segments) == 1:
            machine.append(1)
            machine.log.roll(0)
            machine.append(1)
        original(path, data)

    machine.disk.write_bytes = roll_meanwhile  # type: ignore[method-assign]
    work()
    machine.log.sync()
    machine.home.background.waiting.clear()
    assert machine.last_row().base_offset == 0
    assert machine.last_row().end_offset == 3

    machine.crash()

    assert [segment.base_offset for segment in machine.log.segments] == [0, 4]
    assert machine.offsets() == [0, 1, 2, 3, 4]


def test_truncation_before_the_commit_makes_the_checkpoint_void() -> None:
    machine = Machine()
    machine.append(5)
    work = machine.take()
    machine.log.truncate_to(Offset(2))
    work()
    machine.crash()
    assert machine.offsets() == [0, 1]
    assert machine.log.log_end_offset == 2


def test_swap_before_and_after_keeps_the_recovery_point() -> None:
    machine = Machine()
    machine.append(3)
    machine.log.roll(0)
    machine.append(2)
    machine.log.advance_high_watermark(machine.log.sync())
    work = machine.take()
    swap_first(machine.log)
    work()
    point = machine.last_row()
    assert point.end_offset == 5
    swap_first(machine.log)
    assert machine.last_row() == point
    machine.crash()
    assert machine.offsets() == [0, 1, 2, 3, 4]


def swap_first(log: PartitionLog) -> None:
    view = log.cleaning_view()
    sources = view.segments[:1]
    batches, _ = recopied(sources, lambda _: True, ())
    log.cleaning.swap(
        [each.row for each in sources],
        write_cleaned(log, sources, batches, cut=len(batches)),
        generation=view.generation,
        clean_offset=None,
    )


def test_recovery_point_never_goes_back() -> None:
    machine = Machine()
    machine.append(2)
    older = machine.take()
    machine.append(1)
    machine.checkpoint()
    older()
    assert machine.last_row().end_offset == 3


def test_checkpoint_of_a_closed_log_changes_nothing() -> None:
    machine = Machine()
    machine.append(2)
    work = machine.take()
    machine.append(1)
    machine.log.close()
    work()
    assert machine.last_row().end_offset == 3
    machine.log = machine.home.open(is_clean=True)
    assert machine.offsets() == [0, 1, 2]


# ---------------------------------------------------------------- when it is made


def test_log_that_has_not_grown_needs_no_checkpoint() -> None:
    machine = Machine()
    assert machine.log.checkpoint(grown_bytes_min=1) is None
    machine.append(2)
    machine.checkpoint()
    assert machine.log.checkpoint(grown_bytes_min=1) is None
    machine.append(1)
    assert machine.log.checkpoint(grown_bytes_min=BATCH_BYTES * 2) is None
    assert machine.log.checkpoint() is None
    machine.log.roll(0)
    machine.append(1)
    machine.checkpoint()
    assert machine.last_row().base_offset == 3


def test_clean_stop_is_a_recovery_point_for_the_run_after() -> None:
    machine = Machine()
    machine.append(2)
    machine.log.close()
    machine.log = machine.home.open(is_clean=True)
    assert machine.log.checkpoint(grown_bytes_min=1) is None
    machine.append(1)
    assert machine.log.checkpoint(grown_bytes_min=1) is not None


@pytest.mark.parametrize("path", [".index", ".timeindex", ".snapshot", "manifest.tmp"])
def test_full_disk_puts_a_checkpoint_off(path: str) -> None:
    machine = Machine()
    machine.append(4)
    machine.checkpoint()
    machine.append(4)
    machine.disk.faults.fail("append to" if "index" in path else "write", errno.ENOSPC, path=path)

    machine.checkpoint()

    assert machine.log.offline_reason is None
    assert machine.last_row().end_offset == 4
    machine.crash(Loss.TORN)
    machine.log.sync()
    machine.append(1)
    machine.checkpoint()
    end = machine.log.log_end_offset
    machine.crash()
    assert machine.offsets() == list(range(end))


def test_failed_sync_takes_the_directory_offline_and_moves_nothing() -> None:
    machine = Machine()
    machine.append(3)
    machine.disk.faults.fail("sync", errno.EIO, path=LOG)

    machine.checkpoint()

    assert machine.log.offline_reason is not None
    assert len(machine.home.failures) == 1
    assert machine.last_row().size == 0


def test_recovery_of_much_data_records_a_recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.recovery.recovery.CHECKPOINT_BYTES_MIN", 200)
    machine = Machine()
    machine.append(4)
    machine.log.sync()
    machine.crash()
    assert machine.last_row().end_offset == 4
    machine.disk.overwrite(machine.path(LOG), 70, b"\xff")
    machine.crash()
    assert machine.log.log_end_offset == 4
    assert knows(machine.log, 3)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_log_that_ends_at_its_recovery_point_is_left_as_it_is(is_stopped: bool) -> None:
    machine = Machine()
    machine.append(4)
    if is_stopped:
        machine.log.close()
    else:
        machine.checkpoint()
    before = machine.files()

    machine.crash()

    assert machine.files() == before
    assert machine.offsets() == [0, 1, 2, 3]
    assert knows(machine.log, 3)
    assert machine.log.reader.end_offset_for_epoch(Epoch(1)) == (1, 4)
    machine.append(1)
    machine.log.close()
    machine.log = machine.home.open(is_clean=True)
    assert machine.offsets() == [0, 1, 2, 3, 4]


def test_epoch_of_a_batch_that_a_crash_has_lost_is_forgotten() -> None:
    machine = Machine()
    machine.append(2)
    machine.log.roll(0)
    machine.append(1)
    machine.log.close()
    machine.log = machine.home.open(is_clean=True, epoch=5)
    machine.append(1)
    machine.log.advance_high_watermark(Offset(3))
    swap_first(machine.log)

    machine.crash()

    assert machine.log.log_end_offset == 3
    assert machine.log.epochs.entries == ((1, 0),)

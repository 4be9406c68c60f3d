"""A key sidecar never outlives its segment file, and is never used for other bytes."""

from __future__ import annotations

import dataclasses
import errno
from random import Random

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import DiskError, NoSpace, SegmentRemoved
from storage.files.paths import CLEANED, KEYS, segment_file
from storage.log.cleaning_view import CleanableSegment
from storage.log.log import PartitionLog
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.key_blocks import blocks_of, check_sidecar, index, totals_of
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred, LogHome, read_all
from tests.harness.memory_fs import Loss, MemoryFileSystem

DIRECTORY = "/data/orders/0"
HASH_KEY = bytes(16)


@dataclasses.dataclass(slots=True)
class Machine:
    """A log with four sealed segments of three records each, and an active one."""

    disk: MemoryFileSystem
    home: LogHome
    log: PartitionLog

    def names(self) -> list[str]:
        """Returns the names of all key sidecars."""
        return [name for name in self.disk.list(DIRECTORY) if KEYS in name]

    def segments(self) -> tuple[CleanableSegment, ...]:
        return self.log.cleaning_view().segments

    def index_all(self) -> None:
        for segment in self.segments():
            index(segment, HASH_KEY)

    def bases_with_keys(self) -> list[int]:
        """Returns the segments with a usable sidecar."""
        return [each.row.base_offset for each in self.segments() if check_sidecar(each, HASH_KEY)]

    def append(self) -> None:
        self.log.appender.append_as_leader(valid(batch_of([(b"key", bytes(40))])), now_ms=0)

    def swap(self, *, has_keys: bool = True) -> None:
        """Clean the first two segments into one."""
        view = self.log.cleaning_view()
        sources = view.segments[:2]
        batches, _ = recopied(sources, lambda record: record.offset in (1, 4), ())
        cleaned = write_cleaned(self.log, sources, batches, cut=99, has_keys=has_keys)
        rows = [each.row for each in sources]
        self.log.cleaning.swap(rows, cleaned, generation=view.generation, clean_offset=None)

    def after_crash(self, loss: Loss, seed: int = 0) -> Machine:
        disk = self.disk.after_crash(loss, Random(seed))
        home = LogHome(disk)
        return Machine(disk, home, home.open())


@pytest.fixture
def machine() -> Machine:
    return machine_with(Deferred())


def machine_with(background: Deferred) -> Machine:
    disk = MemoryFileSystem()
    home = LogHome(disk, background=background)
    machine = Machine(disk, home, home.create())
    for _ in range(4):
        for _ in range(3):
            machine.append()
        machine.log.roll(0)
    machine.log.advance_high_watermark(machine.log.sync())
    return machine


def test_a_segment_has_no_sidecar_until_one_is_made(machine: Machine) -> None:
    first = machine.segments()[0]
    assert first.key_sidecar(HASH_KEY) is None
    index(first, HASH_KEY)
    assert machine.bases_with_keys() == [0]
    first.drop_key_sidecar()
    first.drop_key_sidecar()
    assert machine.bases_with_keys() == []
    assert machine.names() == []


def test_a_damaged_sidecar_is_removed_and_rebuilt(machine: Machine) -> None:
    machine.index_all()
    first = machine.segments()[0]
    machine.disk.overwrite(first.segment.path(KEYS), 3, b"?")
    assert first.key_sidecar(HASH_KEY) is None
    assert machine.bases_with_keys() == [3, 6, 9]
    index(first, HASH_KEY)
    assert machine.bases_with_keys() == [0, 3, 6, 9]


def test_a_sidecar_under_another_hash_key_is_rebuilt(machine: Machine) -> None:
    """As after a log was moved to a directory with another hash key."""
    first = machine.segments()[0]
    index(first, b"another hash key")
    assert first.key_sidecar(HASH_KEY) is None
    assert machine.names() == []


def test_sidecars_outlive_a_clean_stop_and_a_crash_after_they_reached_the_disk(
    machine: Machine,
) -> None:
    machine.index_all()
    crashed = machine.after_crash(Loss.NOTHING)
    assert crashed.bases_with_keys() == [0, 3, 6, 9]
    machine.log.close()
    machine.log = machine.home.open(is_clean=True)
    assert machine.bases_with_keys() == [0, 3, 6, 9]


def test_a_crash_may_take_sidecars_but_never_leaves_a_wrong_one(machine: Machine) -> None:
    machine.index_all()
    left = [machine.after_crash(Loss.TORN, seed) for seed in range(200)]
    whole = [len(crashed.bases_with_keys()) for crashed in left]
    assert {0, 1, 2} <= set(whole)
    assert machine.after_crash(Loss.EVERYTHING).names() == []
    for crashed in left:
        assert [record.offset for record in read_all(crashed.log)] == list(range(12))


def test_a_cleaned_segment_brings_its_sidecar_and_its_sources_take_theirs_along(
    machine: Machine,
) -> None:
    machine.index_all()
    before = set(machine.names())
    machine.swap()
    assert machine.bases_with_keys() == [0, 6, 9]
    assert len(set(machine.names()) - before) == 1
    assert len(machine.names()) == 3


def test_a_cleaned_segment_needs_no_sidecar(machine: Machine) -> None:
    machine.swap(has_keys=False)
    assert machine.names() == []
    assert [record.offset for record in read_all(machine.log)] == [1, 4, *range(6, 12)]


def test_a_crash_before_the_renames_of_a_swap_keeps_the_sidecar_if_the_disk_has_it(
    machine: Machine,
) -> None:
    machine.disk.faults.fail("rename", errno.EIO, path=CLEANED)
    with pytest.raises(DiskError):
        machine.swap()
    assert machine.after_crash(Loss.NOTHING).bases_with_keys() == [0]
    assert machine.after_crash(Loss.EVERYTHING).bases_with_keys() == []


def test_an_unfinished_cleaned_segment_leaves_no_sidecar(machine: Machine) -> None:
    sources = machine.segments()[:2]
    data = sources[0].read_at(0, sources[0].row.size)
    writer = machine.log.cleaning.new_cleaned_segment(Offset(0))
    writer.append(data, memoryview(b"").cast("q"))
    for block in blocks_of(data, base_offset=0, hash_key=HASH_KEY):
        writer.append_keys(block)
    assert machine.after_crash(Loss.NOTHING).names() == []
    writer.discard()
    assert machine.names() == []


def test_blocks_without_totals_make_no_sidecar(machine: Machine) -> None:
    first = machine.segments()[0]
    data = first.read_at(0, first.row.size)
    writer = machine.log.cleaning.new_cleaned_segment(Offset(0))
    writer.append(data, memoryview(b"").cast("q"))
    writer.append_keys(blocks_of(data, base_offset=0, hash_key=HASH_KEY)[0])
    writer.finish(first.row)
    assert machine.names() == []


@pytest.mark.parametrize("full", ["append to", "open"])
def test_a_full_disk_under_a_sidecar_puts_the_pass_off(machine: Machine, full: str) -> None:
    machine.disk.faults.fail(full, errno.ENOSPC, path=KEYS)
    with pytest.raises(NoSpace):
        index(machine.segments()[0], HASH_KEY)
    assert machine.names() == []
    assert machine.log.offline_reason is None
    machine.index_all()
    assert machine.bases_with_keys() == [0, 3, 6, 9]


def test_retention_takes_the_sidecars_of_what_it_deletes(machine: Machine) -> None:
    machine.index_all()
    machine.log.delete_records(Offset(6))
    assert machine.bases_with_keys() == [6, 9]
    assert len(machine.names()) == 2


def test_retention_on_a_full_disk_makes_room_with_the_sidecars_of_what_goes(
    machine: Machine,
) -> None:
    machine.index_all()
    machine.disk.faults.fail("write", errno.ENOSPC, path="manifest.tmp")
    machine.log.delete_records(Offset(6))
    assert machine.log.log_start_offset == 6
    assert len(machine.names()) == 2


@pytest.mark.parametrize("offset", [9, 8, 7, 6, 0])
def test_a_truncation_takes_the_sidecars_of_all_that_it_touches(
    machine: Machine, offset: int
) -> None:
    machine.index_all()
    machine.log.truncate_to(Offset(offset))
    whole = [base for base in (0, 3, 6, 9) if base + 3 < offset]
    assert machine.bases_with_keys() == whole
    assert len(machine.names()) == len(whole)


def test_a_log_that_starts_over_has_no_sidecar(machine: Machine) -> None:
    machine.index_all()
    machine.log.truncate_fully_and_start_at(Offset(20))
    assert machine.names() == []


def test_a_sidecar_begun_before_a_truncation_is_of_no_use_after_it(machine: Machine) -> None:
    writers = []
    for segment in machine.segments():
        data = segment.read_at(0, segment.row.size)
        writer = segment.new_key_sidecar(HASH_KEY)
        for block in blocks_of(data, base_offset=segment.row.base_offset, hash_key=HASH_KEY):
            writer.append(block)
        writers.append((writer, data))
    machine.log.truncate_to(Offset(5))
    for writer, data in writers:
        writer.finish(len(data), totals_of(data))
    assert machine.bases_with_keys() == [0]
    assert len(machine.names()) == 1


def test_a_sidecar_whose_segment_is_retired_meanwhile_goes_with_it(machine: Machine) -> None:
    segment = machine.segments()[0]
    data = segment.read_at(0, segment.row.size)
    writer = segment.new_key_sidecar(HASH_KEY)
    for block in blocks_of(data, base_offset=0, hash_key=HASH_KEY):
        writer.append(block)
    machine.swap(has_keys=False)
    writer.finish(len(data), totals_of(data))
    assert machine.names() == []
    with pytest.raises(SegmentRemoved):
        segment.new_key_sidecar(HASH_KEY)
    assert machine.names() == []


def test_what_was_rolled_but_not_listed_loses_its_sidecar_in_a_crash() -> None:
    """Its segment may lose bytes, and then grow to the same size again."""
    background = Deferred(inline=False)
    machine = machine_with(background)
    machine.index_all()
    assert machine.bases_with_keys() == [0, 3, 6, 9]
    crashed = machine.after_crash(Loss.NOTHING)
    assert crashed.names() == []
    assert [record.offset for record in read_all(crashed.log)] == list(range(12))
    background.run_all()
    # The manifest is old: it lists only the last segment as possibly not sealed.
    assert machine.after_crash(Loss.NOTHING).bases_with_keys() == [0, 3, 6, 9]


def test_a_sidecar_beside_the_active_segment_is_a_leftover(machine: Machine) -> None:
    machine.append()
    machine.log.sync()
    active = machine.log.segments[-1]
    name = segment_file(active.base_offset, active.file_version, KEYS)
    machine.disk.write_bytes(f"{DIRECTORY}/{name}", b"KKEY")
    machine.disk.write_bytes(f"{DIRECTORY}/{name}{CLEANED}", b"KKEY")
    assert machine.after_crash(Loss.NOTHING).names() == []

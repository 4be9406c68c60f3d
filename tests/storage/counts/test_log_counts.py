"""Examples of what is counted of a log, and what is read for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.records.record_batch import Record
from protocol.wire.numbers import Epoch, Offset, Position, ProducerId
from storage.counts.log_counts import (
    RecordCount,
    RecordsView,
    count_records,
    estimated_between,
    first_live_offset,
)
from storage.counts.segment_counts import Counts, ReadBudget, counts_between
from storage.files.paths import MANIFEST, join
from storage.formats.manifest import UNKNOWN, decode, encode
from storage.log.log import PartitionLog
from storage.segment.lookup import START
from tests.harness.hand_cleaning import recopied, write_cleaned
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import SMALL, LogHome
from tests.harness.memory_fs import MemoryFileSystem

NOTHING = 0
PLENTY = 1 << 30
LARGE = replace(SMALL, segment_bytes=1 << 20)


def append(log: PartitionLog, count: int = 5, **fields: int | bool) -> None:
    pairs = [(b"k%d" % number, bytes(20)) for number in range(count)]
    batch = batch_of(pairs, **fields)  # type: ignore[arg-type]
    log.appender.append_as_leader(valid(batch), now_ms=0)
    log.advance_high_watermark(log.sync())


def end_transaction(log: PartitionLog, *, is_commit: bool = True) -> None:
    log.appender.append_marker(
        ProducerId(7), Epoch(0), is_commit=is_commit, coordinator_epoch=Epoch(0), now_ms=0
    )
    log.advance_high_watermark(log.sync())


def keep_only(log: PartitionLog, keep: Callable[[Record], bool]) -> None:
    """Roll the log, and clean all of it by hand."""
    log.roll(0)
    view = log.cleaning_view()
    batches, _ = recopied(view.segments, keep, view.producer_last_offsets)
    cleaned = write_cleaned(log, view.segments, batches, cut=len(batches))
    rows = [each.row for each in view.segments]
    log.cleaning.swap(rows, cleaned, generation=view.generation, clean_offset=None)


def view_of(log: PartitionLog) -> RecordsView:
    view = log.records_view()
    assert view is not None
    return view


def count(log: PartitionLog, offset: int = 0, budget: int = PLENTY) -> RecordCount:
    return count_records(view_of(log), Offset(offset), ReadBudget(budget))


def exactly(number: int) -> RecordCount:
    return RecordCount(number, is_exact=True)


@pytest.fixture
def home() -> LogHome:
    return LogHome(MemoryFileSystem(), config=LARGE)


@pytest.fixture
def log(home: LogHome) -> PartitionLog:
    return home.create()


def test_an_empty_log_has_no_record(log: PartitionLog) -> None:
    assert count(log) == exactly(0)
    assert first_live_offset(view_of(log), ReadBudget(PLENTY)) is None


def test_gaps_do_not_count(log: PartitionLog) -> None:
    for _ in range(4):
        append(log)
    keep_only(log, lambda record: record.offset in {3, 7, 8, 19})
    append(log)

    assert [count(log, at) for at in (0, 3, 4, 7, 8, 9, 19, 20, 24, 25)] == [
        exactly(number) for number in (9, 9, 8, 8, 7, 6, 6, 5, 1, 0)
    ]
    assert first_live_offset(view_of(log), ReadBudget(PLENTY)) == 3


def test_an_offset_beyond_the_end_has_no_lag(log: PartitionLog) -> None:
    append(log)
    assert count(log, 1000) == exactly(0)


def test_what_no_reader_may_get_yet_does_not_count(log: PartitionLog) -> None:
    append(log)
    log.appender.append_as_leader(valid(batch_of([(b"k", b"v")])), now_ms=0)
    assert count(log) == exactly(5)


def test_a_consumer_before_the_last_marker_has_read_everything(log: PartitionLog) -> None:
    append(log, 3, producer_id=7, producer_epoch=0, is_transactional=True)
    end_transaction(log)

    assert [count(log, at) for at in (0, 2, 3, 4)] == [exactly(n) for n in (3, 1, 0, 0)]


def test_records_of_an_aborted_transaction_count_while_they_are_there(log: PartitionLog) -> None:
    append(log, 3, producer_id=7, producer_epoch=0, is_transactional=True)
    end_transaction(log, is_commit=False)
    append(log, 2)

    assert count(log) == exactly(5)


def test_the_first_live_offset_is_behind_markers_and_deleted_records(log: PartitionLog) -> None:
    append(log, 3, producer_id=7, producer_epoch=0, is_transactional=True)
    end_transaction(log)
    append(log, 4)
    log.delete_records(Offset(3))

    assert first_live_offset(view_of(log), ReadBudget(PLENTY)) == 4
    log.delete_records(Offset(6))
    assert first_live_offset(view_of(log), ReadBudget(PLENTY)) == 6
    assert count(log) == exactly(2)
    log.delete_records(Offset(8))
    assert first_live_offset(view_of(log), ReadBudget(PLENTY)) is None


def test_a_segment_without_gaps_is_not_read(log: PartitionLog) -> None:
    for _ in range(3):
        append(log)
    log.roll(0)
    append(log)

    assert [count(log, at, NOTHING) for at in (0, 7, 17)] == [exactly(n) for n in (20, 13, 3)]
    assert first_live_offset(view_of(log), ReadBudget(NOTHING)) == 0


def test_counts_that_follow_a_reader_read_each_byte_once(log: PartitionLog) -> None:
    for _ in range(200):
        append(log)
    keep_only(log, lambda record: record.offset % 7 == 0)
    size = log.segments[0].size
    budget = ReadBudget(size)

    followed = [
        count_records(view_of(log), Offset(offset), budget) for offset in range(1, 1000, 20)
    ]

    assert followed == [
        exactly(len(range(offset + -offset % 7, 1000, 7))) for offset in range(1, 1000, 20)
    ]
    # The end is nearer for the last ones, and the rest was read from the start on.
    assert budget.bytes_left >= 0
    before = budget.bytes_left
    count_records(view_of(log), Offset(1), budget)
    assert before - budget.bytes_left < size // 50


def test_over_the_budget_the_number_is_estimated_and_the_next_count_goes_on(
    log: PartitionLog,
) -> None:
    for _ in range(200):
        append(log)
    keep_only(log, lambda record: record.offset >= 500 or record.offset in range(0, 250, 2))

    assert count(log, 250, NOTHING) == RecordCount(625 * 750 // 1000, is_exact=False)
    assert count(log, 250) == exactly(500)
    assert count(log, 250, NOTHING) == exactly(500)
    assert estimated_between(log.segments, Offset(250), Offset(1000)) == 625 * 750 // 1000
    assert estimated_between(log.segments, Offset(0), Offset(1000)) == 625
    assert estimated_between(log.segments, Offset(1000), Offset(1000)) == 0


def test_a_truncation_subtracts_what_it_cuts_off(home: LogHome, log: PartitionLog) -> None:
    append(log, 3, producer_id=7, producer_epoch=0, is_transactional=True)
    end_transaction(log)
    append(log, 4)
    end_transaction(log)
    log.truncate_to(Offset(8))

    assert count(log) == exactly(7)
    assert (log.segments[0].record_count, log.segments[0].control_count) == (8, 1)
    log.close()
    assert count(home.open(is_clean=True)) == exactly(7)
    assert count(home.open(is_clean=False)) == exactly(7)


def test_a_truncation_of_damage_leaves_a_bound(home: LogHome, log: PartitionLog) -> None:
    append(log)
    append(log)
    append(log)
    segment = log.segments[0]
    size = segment.size // 3
    with segment.pinned() as file:
        file.truncate(size * 2 + 8)
        file.append((bytes(size - 8),))
    log.truncate_to(Offset(5))

    assert segment.control_count == UNKNOWN
    assert not count(log).is_exact
    assert count(log, 5) == exactly(0)
    assert count(log, 3) == exactly(2)


def test_rows_of_an_earlier_release_count_as_if_they_had_no_markers(home: LogHome) -> None:
    log = home.create()
    append(log, 3, producer_id=7, producer_epoch=0, is_transactional=True)
    end_transaction(log)
    append(log, 4)
    log.roll(0)
    append(log, 2)
    log.close()
    path = join(home.identity.directory, MANIFEST)
    manifest = decode(home.fs.read_bytes(path), path)
    old = [replace(row, control_count=UNKNOWN) for row in manifest.segments]
    home.fs.write_bytes(path, encode(replace(manifest, segments=tuple(old))))

    log = home.open(is_clean=True)
    append(log, 1)

    assert count(log) == RecordCount(11, is_exact=False)
    assert count(log, 3, NOTHING).is_exact is False
    assert count(log, 10) == exactly(1)
    assert count(log, 11) == exactly(0)
    keep_only(log, lambda record: True)
    assert count(log) == exactly(10)


def test_no_view_is_given_while_the_log_is_cut(log: PartitionLog) -> None:
    append(log)
    log._list.begin_change()
    assert log.records_view() is None
    log._list.end_change()
    assert log.records_view() is not None


def test_batches_in_a_range_of_a_file_are_counted(log: PartitionLog) -> None:
    append(log, 3, producer_id=7, producer_epoch=0, is_transactional=True)
    end_transaction(log)
    segment = log.segments[0]
    with segment.pinned() as file:
        found = counts_between(file, segment.base_offset, START, Position(segment.size))
    assert found == Counts(records=4, controls=1)
    assert found.data == 3

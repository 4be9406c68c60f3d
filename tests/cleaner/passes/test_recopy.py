"""Recopying a group: the outputs' manifest rows, and groups with several outputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.kernel.kernel import BatchFilter
from cleaner.passes.index import IndexedSegment, SegmentIndex
from cleaner.passes.mark import Marked
from cleaner.passes.memory import marks_bytes
from cleaner.passes.recopy import Recopy, cleaned_rows
from cleaner.rules.step import SegmentSummary
from protocol.wire.numbers import Offset
from storage.files.errors import DiskError
from storage.files.paths import KEYS
from storage.formats.manifest import UNKNOWN, SegmentRow
from tests.harness.compacted_log import HASH_KEY, SETTINGS, CompactedLog, meter_of

SUMMARY = SegmentSummary(
    base_offset=Offset(10),
    size_bytes=100,
    end_offset=15,
    batches=1,
    records=2,
    controls=0,
    tombstones=1,
    tombstone_bytes=9,
    delete_horizon_ms_min=77,
    tombstone_horizon_ms_max=88,
    max_timestamp=5,
    max_timestamp_offset=Offset(14),
)
SOURCE = SegmentRow(
    base_offset=Offset(10),
    file_version=1,
    end_offset=Offset(20),
    size=200,
    first_append_ms=1000,
    last_append_ms=2000,
)


def test_a_row_takes_times_from_its_sources_and_contents_from_the_filter() -> None:
    later = replace(
        SOURCE,
        base_offset=Offset(20),
        end_offset=Offset(30),
        first_append_ms=3000,
        last_append_ms=1,
    )

    (row,) = cleaned_rows([SUMMARY], [SOURCE, later], now_ms=9000)

    assert (row.base_offset, row.end_offset) == (10, 30)
    assert (row.created_ms, row.first_append_ms, row.last_append_ms) == (9000, 1000, 2000)
    assert (row.record_count, row.tombstone_count, row.least_delete_horizon_ms) == (2, 1, 77)
    assert (row.tombstone_bytes, row.tombstones_due_ms) == (9, 88)
    assert (row.max_timestamp, row.offset_of_max_timestamp) == (5, 14)


def test_a_source_without_append_times_does_not_make_a_group_look_old() -> None:
    unknown = replace(SOURCE, first_append_ms=UNKNOWN, last_append_ms=UNKNOWN)

    (row,) = cleaned_rows([SUMMARY], [unknown, SOURCE], now_ms=9000)
    (nothing,) = cleaned_rows([SUMMARY], [unknown], now_ms=9000)

    assert (row.first_append_ms, row.last_append_ms) == (1000, 2000)
    assert (nothing.first_append_ms, nothing.last_append_ms) == (UNKNOWN, UNKNOWN)


def test_several_outputs_cover_the_groups_offsets_without_a_gap() -> None:
    second = replace(SUMMARY, base_offset=Offset(17), end_offset=18)

    rows = cleaned_rows([SUMMARY, second], [SOURCE], now_ms=0)

    assert [(row.base_offset, row.end_offset) for row in rows] == [(10, 17), (17, 20)]


def recopy_of(log: CompactedLog, *, segment_bytes_max: int) -> Recopy:
    """Returns a recopy that drops nothing, because no record is marked."""
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=log.log.log_end_offset,
        tail_offset=log.log.log_end_offset - 1,
        now_ms=0,
        delete_retention_ms=0,
        decompressed_bytes_max=1 << 20,
        segment_bytes_max=segment_bytes_max,
    )
    return Recopy(
        batch_filter,
        log.log.cleaning.new_cleaned_segment,
        has_sidecars=True,
        meter=meter_of(log.log, log.log.generation),
    )


def unmarked(log: CompactedLog) -> list[tuple[IndexedSegment, Marked]]:
    meter = meter_of(log.log, log.log.generation)
    segments = SegmentIndex(HASH_KEY, SETTINGS, meter).index_segments(
        log.log.cleaning_view().segments
    )
    return [
        (segment, Marked(bytearray(marks_bytes(segment.totals.entries)))) for segment in segments
    ]


@pytest.mark.parametrize(
    ("segment_bytes_max", "outputs_count"),
    [
        pytest.param(1 << 20, 1, id="all_fits_one"),
        pytest.param(200, 5, id="two_batches_each"),
        pytest.param(1, 10, id="a_batch_always_fits_an_empty_one"),
    ],
)
def test_an_output_that_is_full_is_followed_by_another(
    segment_bytes_max: int, outputs_count: int
) -> None:
    log = CompactedLog()
    for number in range(10):
        log.append((b"%02d" % number, b"v" * 30))
    log.roll()
    before = log.pairs()
    view = log.log.cleaning_view()

    cleaned = recopy_of(log, segment_bytes_max=segment_bytes_max).run(unmarked(log), now_ms=0)
    rows = [segment.row for segment in view.segments]
    log.log.cleaning.swap(rows, cleaned, generation=view.generation, clean_offset=Offset(10))

    assert len(cleaned) == outputs_count
    assert log.pairs() == before
    assert [segment.base_offset for segment in log.log.segments[1:]] == [
        segment.end_offset for segment in log.log.segments[:-1]
    ]
    # Each output's sidecar equals one that is made from the output.
    made = [log.fs.read_bytes(segment.path(KEYS)) for segment in log.log.segments[:-1]]
    for segment in log.log.segments[:-1]:
        log.fs.unlink(segment.path(KEYS))
    unmarked(log)
    assert made == [log.fs.read_bytes(segment.path(KEYS)) for segment in log.log.segments[:-1]]


def test_a_discard_removes_every_output_finished_or_not() -> None:
    log = CompactedLog()
    for number in range(4):
        log.append((b"%02d" % number, b"v" * 30))
    log.roll()
    recopy = recopy_of(log, segment_bytes_max=1)
    recopy.run(unmarked(log), now_ms=0)
    assert [name for name in log.files() if name.endswith(".cleaned")]

    recopy.discard()

    assert not [name for name in log.files() if name.endswith(".cleaned")]


def test_a_discard_that_the_disk_refuses_does_not_hide_why_it_was_needed() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"a", b"2"))
    log.roll()
    log.fs.faults.fail("append to", 5, path=".cleaned")
    log.fs.faults.fail("unlink", 30, path=".cleaned")

    with pytest.raises(DiskError, match="append to"):
        log.execute(log.plan())

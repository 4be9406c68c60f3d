"""How many data records a log has from an offset on, and the first of them (docs/design/record-lag.md).

    segments above the offset     their counts, which appends, passes and truncations keep
    the segment that holds it     no read if no offset in it is missing; else the headers of its batches
                                  from the nearest place that is known, or, over a budget, an estimate

`estimated_between` reads nothing; it is for scrapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.wire.numbers import Offset
from storage.counts.segment_counts import (
    CountedSegment,
    OverBudget,
    ReadBudget,
    data_count,
    first_record,
    is_counted,
    records_from,
)
from storage.files.errors import CorruptLog
from storage.formats.manifest import SegmentRow
from storage.segment.reader import first_segment_past
from storage.segment.segment import Segment


class RecordCount(NamedTuple):
    """A number of data records."""

    records: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class RecordsView:
    """A log's segments at one moment, with which a worker thread counts."""

    segments: tuple[Segment, ...]
    active_row: SegmentRow
    log_start_offset: Offset
    high_watermark: Offset
    rewrites: int
    """See `PartitionLog.rewrites`: if it has changed, what was counted may be of two logs."""

    def row(self, index: int) -> CountedSegment:
        """Returns a segment's counts; those of sealed ones do not change."""
        is_active = index == len(self.segments) - 1
        return self.active_row if is_active else self.segments[index]


def count_records(view: RecordsView, offset: Offset, budget: ReadBudget) -> RecordCount:
    """Returns the number of data records from `offset` to the high watermark. A worker thread.

    Where the budget ends, or a segment is damaged, the number is an estimate.

    Raises:
        SegmentRemoved: the view is out of date; take another.
        DiskError: a segment cannot be read.
    """
    first = max(offset, view.log_start_offset)
    if first >= view.high_watermark:
        return RecordCount(0, is_exact=True)
    found = _count_from(view, first, budget)
    unreadable = _count_from(view, view.high_watermark, budget)
    return RecordCount(
        _between(found.records, unreadable.records, view.high_watermark - first),
        is_exact=found.is_exact and unreadable.is_exact,
    )


def _between(from_start: int, from_end: int, offsets: int) -> int:
    """Returns the records in a range of so many offsets. Pure."""
    return min(max(from_start - from_end, 0), offsets)


def first_live_offset(view: RecordsView, budget: ReadBudget) -> Offset | None:
    """Returns the offset of the first data record; None if there is none, or over the budget.

    Raises like `count_records`.
    """
    start = view.log_start_offset
    try:
        for index in range(first_segment_past(view.segments, start), len(view.segments)):
            found = _first_in(view.segments[index], view.row(index), start, budget)
            if found is not None:
                return found if found < view.high_watermark else None
    except (OverBudget, CorruptLog):
        pass
    return None


def _first_in(
    segment: Segment, counts: CountedSegment, start: Offset, budget: ReadBudget
) -> Offset | None:
    count, first = data_count(counts), max(start, counts.base_offset)
    if first >= counts.end_offset or not count:
        return None
    if is_counted(counts) and count == counts.end_offset - counts.base_offset:
        return first
    return first_record(segment, _row_of(segment, counts), first, budget)


def _row_of(segment: Segment, counts: CountedSegment) -> SegmentRow:
    return counts if isinstance(counts, SegmentRow) else segment.full_row()


def _count_from(view: RecordsView, offset: Offset, budget: ReadBudget) -> RecordCount:
    index = first_segment_past(view.segments, offset)
    if index == len(view.segments):
        return RecordCount(0, is_exact=True)
    records, is_exact = _count_in(view.segments[index], view.row(index), offset, budget)
    for above in range(index + 1, len(view.segments)):
        counts = view.row(above)
        records += data_count(counts)
        is_exact = is_exact and is_counted(counts)
    return RecordCount(records, is_exact)


def _count_in(
    segment: Segment, counts: CountedSegment, offset: Offset, budget: ReadBudget
) -> RecordCount:
    estimate = _estimate(counts, offset)
    if estimate.is_exact or offset <= counts.base_offset:
        return estimate
    try:
        records = records_from(segment, _row_of(segment, counts), offset, budget)
    except (OverBudget, CorruptLog):
        return estimate
    return RecordCount(records, is_exact=True)


def estimated_between(segments: Sequence[Segment], start: Offset, end: Offset) -> int:
    """Returns about how many data records lie in [start, end), without a read. Any thread.

    It is 0 at the end of the log, and exact at the ends of segments and where no offset is missing.
    """
    if start >= end:
        return 0
    found, above = _estimated_from(segments, start), _estimated_from(segments, end)
    return _between(found, above, end - start)


def _estimated_from(segments: Sequence[Segment], offset: Offset) -> int:
    index = first_segment_past(segments, offset)
    if index == len(segments):
        return 0
    above = sum([data_count(each) for each in segments[index + 1 :]])
    return above + _estimate(segments[index], offset).records


def _estimate(counts: CountedSegment, offset: Offset) -> RecordCount:
    """Returns a segment's data records at and above `offset`, as if they were evenly spread. Pure.

    It is exact where the number of offsets leaves only one possibility.
    """
    count, end = data_count(counts), counts.end_offset
    if offset <= counts.base_offset:
        return RecordCount(count, is_counted(counts))
    if offset >= end:
        return RecordCount(0, is_exact=True)
    most = min(count, end - offset)
    least = max(count - (offset - counts.base_offset), 0)
    if least >= most:
        return RecordCount(most, is_counted(counts) or not most)
    share = count * (end - offset) // (end - counts.base_offset)
    return RecordCount(min(max(share, least), most), is_exact=False)

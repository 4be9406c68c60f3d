"""Counts the records of a segment's batches, by the headers of whole batches.

    data records       what consumers get; those of aborted transactions are among them
    control records    markers of transactions, which no consumer sees

Only a batch in which a range of offsets begins is decoded, and only if records are missing in it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from protocol.records.batch_tally import BatchTally
from protocol.records.record_batch import read_records
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset, Position
from storage.batches.cached_reads import WaitingReads
from storage.batches.scan import scan_file
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.batches.walk import BatchPlace, walk_batches
from storage.files.errors import CorruptLog
from storage.files.files import File
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.segment.lookup import START, batch_at
from storage.segment.segment import Segment


class CountedSegment(Protocol):
    """The counts of a segment or of its row."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def end_offset(self) -> Offset: ...
    @property
    def record_count(self) -> int: ...
    @property
    def control_count(self) -> int: ...


def is_counted(segment: CountedSegment) -> bool:
    """Returns whether `data_count` is exact: the segment's row is not from an earlier release."""
    return segment.control_count != UNKNOWN


def data_count(segment: CountedSegment) -> int:
    """Returns the number of a segment's data records; an upper bound unless `is_counted`."""
    return max(segment.record_count, 0) - max(segment.control_count, 0)


class Counts(NamedTuple):
    """The number of records in some batches."""

    records: int
    controls: int
    """How many of them are in control batches."""

    @property
    def data(self) -> int:
        return self.records - self.controls


class OverBudget(Exception):
    """Counting takes more bytes than may be read for it."""


class ReadBudget:
    """How many bytes of batches may still be read for counts. One thread at a time."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_left: int) -> None:
        self.bytes_left = bytes_left

    def spend(self, size: int) -> None:
        """Raise OverBudget, and leave the budget as it is, if fewer bytes than `size` are left."""
        if size > self.bytes_left:
            raise OverBudget
        self.bytes_left -= size


def counts_between(file: File, base_offset: Offset, start: Position, end: Position) -> Counts:
    """Returns the counts of the batches in [start, end), which are batch boundaries.

    Args:
        base_offset: of the segment.

    Raises:
        CorruptLog: a batch has an impossible header. Checksums are not checked.
        DiskError: the file cannot be read.
    """
    tally = BatchTally(
        base_offset=base_offset,
        index_interval_bytes=LONG_MAX,
        position=start,
        producers_from=LONG_MAX,
        checks_crc=False,
    )
    stopped = scan_file(file, end, tally)
    if stopped.position != end:
        raise CorruptLog(file.path, stopped.position, stopped.reason)
    return Counts(tally.record_count, tally.control_count)


def records_from(segment: Segment, row: SegmentRow, offset: Offset, budget: ReadBudget) -> int:
    """Returns the number of data records of a segment at and above `offset`. A worker thread.

    Reads from the nearest place for which the number is known: the segment's start or end, or the place
    of the count before (`Segment.counted_below`). So a count that follows a reader reads each byte once.

    Args:
        row: the segment's values at one moment; batches after its size are not counted.

    Raises:
        OverBudget: too many bytes lie between that place and `offset`.
        SegmentRemoved: the segment was retired.
        CorruptLog, DiskError: its batches cannot be read.
    """
    with segment.pinned() as file:
        place = batch_at(segment, offset, row.size, WaitingReads(file))
        position = Position(row.size) if place is None else place.position
        in_batch = 0 if place is None else _data_below(file, place, offset)
        if not is_counted(row):
            budget.spend(row.size - position)
            above = counts_between(file, row.base_offset, position, Position(row.size))
            return above.data - in_batch
        below = _known_below(segment, row, position, file, budget)
        segment.counted_below = (position, below)
        return data_count(row) - below - in_batch


def _known_below(
    segment: Segment, row: SegmentRow, position: Position, file: File, budget: ReadBudget
) -> int:
    """Returns the number of data records in the batches below `position`."""
    known = [(START, 0), (Position(row.size), data_count(row))]
    counted = segment.counted_below
    if counted is not None and counted[0] <= row.size:
        known.append(counted)
    start, below = min(known, key=lambda each: abs(each[0] - position))
    budget.spend(abs(position - start))
    if start <= position:
        return below + counts_between(file, row.base_offset, start, position).data
    return below - counts_between(file, row.base_offset, position, start).data


def _data_below(file: File, place: BatchPlace, offset: Offset) -> int:
    """Returns the number of a batch's data records below `offset`."""
    if place.base_offset >= offset:
        return 0
    if place.is_dense:
        return offset - place.base_offset
    return sum(each < offset for each in _offsets(file, place))


def first_record(
    segment: Segment, row: SegmentRow, offset: Offset, budget: ReadBudget
) -> Offset | None:
    """Returns the offset of the first data record at or above `offset`; None if there is none.

    Raises like `records_from`.
    """
    with segment.pinned() as file:
        start = batch_at(segment, offset, row.size, WaitingReads(file))
        if start is None:
            return None
        for place in walk_batches(file, start.position, row.size):
            budget.spend(place.size)
            if place.record_count and not place.is_control:
                if place.is_dense:
                    return max(place.base_offset, offset)
                found = next((each for each in _offsets(file, place) if each >= offset), None)
                if found is not None:
                    return found
    return None


def _offsets(file: File, place: BatchPlace) -> list[Offset]:
    data = file.read_at(place.position, place.size)
    try:
        records = read_records(data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except CorruptBatch as error:
        raise CorruptLog(file.path, place.position, str(error)) from error
    return [Offset(each.offset) for each in records]

"""Read one record of a log by its offset: one batch is read, and only its records are looked at."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from protocol.records.record import Headers, Record
from protocol.records.record_columns import BinaryColumn, Columns, RecordColumns
from protocol.wire.numbers import Offset
from storage.files.errors import NotCached
from storage.segment.lookup import batch_at
from storage.segment.segment import Segment

_base_offset = attrgetter("base_offset")


def record_at(
    segments: Sequence[Segment],
    offset: Offset,
    *,
    decompressed_bytes_max: int,
    cached_bytes_max: int | None = None,
) -> Record | None:
    """Returns the record at an offset; None if the log has none there.

    Args:
        segments: all of the log, in offset order.
        cached_bytes_max: read only what is in memory, and no batch that is larger; None waits for the
            disk, which only a worker thread may do.

    Raises:
        NotCached: `cached_bytes_max` forbids to read the batch.
        CorruptBatch, DecompressionTooLarge, CorruptLog: the batch is damaged, or inflates to more.
        SegmentRemoved: a pass or retention has removed the segment; retry with the log's segments.
        DiskError: reading failed.
    """
    number = bisect_right(segments, offset, key=_base_offset) - 1
    if number < 0 or segments[number].end_offset <= offset:
        return None
    segment = segments[number]
    with segment.reading(cached_only=cached_bytes_max is not None) as reads:
        place = batch_at(segment, offset, segment.size, reads)
        if place is None or place.base_offset > offset:
            return None
        if cached_bytes_max is not None and place.size > cached_bytes_max:
            raise NotCached(reads.path)
        batch = reads.read_at(place.position, place.size)
    columns = RecordColumns(
        first_offset=offset,
        end_offset=offset + 1,
        with_headers=True,
        decompressed_bytes_max=decompressed_bytes_max,
    )
    columns.feed(batch, position=place.position)
    rows = columns.take()
    return _record(rows, offset) if len(rows) else None


def _record(rows: Columns, offset: Offset) -> Record:
    (micros,) = struct.unpack_from("=q", memoryview(rows.timestamp))
    assert rows.key is not None
    assert rows.value is not None
    return Record(
        offset=offset,
        timestamp=micros // 1000,
        key=_cell(rows.key, 0),
        value=_cell(rows.value, 0),
        headers=_headers(rows),
    )


def _headers(rows: Columns) -> Headers:
    names, values = rows.header_names, rows.header_values
    if names is None or values is None:
        return ()
    return tuple(
        ((_cell(names, number) or b"").decode(errors="surrogateescape"), _cell(values, number))
        for number in range(len(names))
    )


def _cell(column: BinaryColumn, number: int) -> bytes | None:
    """Returns a cell of a column; None for a null."""
    if column.null_count:
        validity = memoryview(column.validity)
        if not validity[number >> 3] >> (number & 7) & 1:
            return None
    start, end = struct.unpack_from("=ii", memoryview(column.offsets), 4 * number)
    return bytes(memoryview(column.data)[start:end])

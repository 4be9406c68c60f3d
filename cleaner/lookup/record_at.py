"""Read one record of a log by its offset: one read, and only the batch's own records are looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from protocol.records.record import Record
from protocol.wire.numbers import Offset, Position
from storage.batches.cached_reads import Reads
from storage.batches.record_search import find_record
from storage.batches.walk import last_offset_in
from storage.files.errors import CorruptLog, NotCached
from storage.segment.lookup import claimed_position_before, position_before
from storage.segment.segment import Segment

READ_BYTES = 32 << 10
"""Read at once: usually the batch that the index names and the next one, which has the record."""

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
        cached_bytes_max: read only what is in memory, and not more than this; None waits for the disk,
            which only a worker thread may do.

    Raises:
        NotCached: `cached_bytes_max` forbids to read the batch.
        CorruptBatch, CorruptLog: the batch is damaged.
        DecompressionTooLarge: it inflates to more than `decompressed_bytes_max`.
        SegmentRemoved: a pass or retention has removed the segment; retry with the log's segments.
        DiskError: reading failed.
    """
    number = bisect_right(segments, offset, key=_base_offset) - 1
    if number < 0 or segments[number].end_offset <= offset:
        return None
    segment = segments[number]
    size = segment.size
    with segment.reading(cached_only=cached_bytes_max is not None) as reads:
        position, last_offset = claimed_position_before(segment, offset, reads)
        data = _read(reads, position, size)
        if last_offset is not None and last_offset_in(data) != last_offset:
            # The index is wrong, and is made again, unless that would take too long here.
            position = position_before(segment, offset, reads)
            data = _read(reads, position, size)
        while True:
            record, needed, skipped = find_record(
                data, offset, position=position, decompressed_bytes_max=decompressed_bytes_max
            )
            position = Position(position + skipped)
            if not needed or position == size:
                return record
            if cached_bytes_max is not None and needed > cached_bytes_max:
                raise NotCached(reads.path)
            if position + needed > size:
                raise CorruptLog(reads.path, position, "the segment ends inside a batch")
            data = _read(reads, position, size, at_least=needed)
            if len(data) < needed:
                raise CorruptLog(reads.path, position, "the file ends inside a batch")


def _read(reads: Reads, position: int, size: int, *, at_least: int = 0) -> bytes | bytearray:
    """Returns the next bytes of a segment of some size. A wrong index may name a position beyond it."""
    return reads.read_at(position, max(0, min(max(READ_BYTES, at_least), size - position)))

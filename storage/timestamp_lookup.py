"""Find offsets by timestamp: the first record at or after a time, and the youngest record.

A segment's largest timestamp may belong to a batch whose records the cleaner has removed, so a
segment that promises a match and has none is not the end: the search goes on in the next
(Kafka stops there; compaction.md, invariant 22).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.record_batch import Record, read_header, read_records
from storage.batch_walk import BatchPlace, walk_batches
from storage.files import File
from storage.segment import Segment
from storage.validate import DECOMPRESSED_BYTES_MAX


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record's timestamp and offset."""

    timestamp: int
    offset: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, *, start_offset: int
) -> TimestampOffset | None:
    """The first record, from `start_offset` on, with this timestamp or a later one."""
    for segment in segments:
        if (
            segment.size
            and segment.end_offset > start_offset
            and segment.max_timestamp >= timestamp
        ):
            found = _search(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def youngest(segments: Sequence[Segment], *, start_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp of the log; None if the log has no record."""
    best: TimestampOffset | None = None
    for segment in sorted(segments, key=lambda each: each.max_timestamp, reverse=True):
        if best is not None and segment.max_timestamp < best.timestamp:
            break
        found = _youngest_of(segment, start_offset)
        if found is not None and (
            best is None or (-found.timestamp, found.offset) < (-best.timestamp, best.offset)
        ):
            best = found
    return best


def _search(segment: Segment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first match in one segment; only batches that may hold one are decoded."""
    with segment.pinned() as file:
        start = segment.position_before_timestamp(timestamp)
        for place in walk_batches(file, start, segment.size):
            if place.record_count and place.last_offset >= start_offset:
                for record in _records(file, place, timestamp):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return TimestampOffset(record.timestamp, record.offset)
    return None


def _youngest_of(segment: Segment, start_offset: int) -> TimestampOffset | None:
    """The youngest record of a segment; every header is looked at, only better batches decoded."""
    best: TimestampOffset | None = None
    with segment.pinned() as file:
        for place in walk_batches(file, 0, segment.size):
            if place.record_count and place.last_offset >= start_offset:
                for record in _records(file, place, best.timestamp + 1 if best else -1):
                    if record.offset >= start_offset and (
                        best is None or record.timestamp > best.timestamp
                    ):
                        best = TimestampOffset(record.timestamp, record.offset)
    return best


def _records(file: File, place: BatchPlace, timestamp_min: int) -> Sequence[Record]:
    """A batch's records, or none if its header says that all are older than `timestamp_min`."""
    data = file.read_at(place.position, place.size)
    if read_header(data).max_timestamp < timestamp_min:
        return ()
    return read_records(data, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)

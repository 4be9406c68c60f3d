"""Finds offsets by timestamp: the first record at or after a time, and the youngest record.

A segment's largest timestamp may belong to a batch whose records the cleaner has removed. So a segment
may promise a match and have none; the search then continues in the next segment
(Kafka stops there; invariant 22 of tests/cleaner/invariants).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from protocol.records.record_batch import Record, read_records
from protocol.wire.numbers import Offset
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.batches.walk import BatchPlace, walk_batches
from storage.files.files import File
from storage.segment.lookup import START, position_before, position_before_timestamp
from storage.segment.segment import Segment


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record's timestamp and offset."""

    timestamp: int
    offset: Offset


Bounds: TypeAlias = tuple[Offset, Offset]
"""[start offset, end offset) of the records to search: from the log start to the high watermark."""


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, bounds: Bounds
) -> TimestampOffset | None:
    """Returns the first record within the bounds with this timestamp or a later one."""
    start_offset, end_offset = bounds
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.end_offset > start_offset and segment.max_timestamp >= timestamp:
            found = _search(segment, timestamp, bounds)
            if found is not None:
                return found
    return None


def youngest(segments: Sequence[Segment], bounds: Bounds) -> TimestampOffset | None:
    """Returns the first record with the largest timestamp within the bounds; None without a record."""
    best: TimestampOffset | None = None
    for segment in sorted(segments, key=lambda each: each.max_timestamp, reverse=True):
        if best is not None and segment.max_timestamp < best.timestamp:
            break
        found = _youngest_of_named_batch(segment, bounds) or _youngest_in(segment, bounds)
        if found is not None and (best is None or _is_better(found, best)):
            best = found
    return best


def _is_better(one: TimestampOffset, other: TimestampOffset) -> bool:
    return (one.timestamp, -one.offset) > (other.timestamp, -other.offset)


def _search(segment: Segment, timestamp: int, bounds: Bounds) -> TimestampOffset | None:
    """Returns the first match in a segment. Only batches whose largest timestamp fits are read."""
    with segment.pinned() as file:
        start = position_before_timestamp(segment, timestamp)
        for place in walk_batches(file, start, segment.size):
            if place.base_offset >= bounds[1]:
                break
            if place.max_timestamp >= timestamp:
                for record in _records(file, place, bounds):
                    if record.timestamp >= timestamp:
                        return TimestampOffset(record.timestamp, Offset(record.offset))
    return None


def _youngest_of_named_batch(segment: Segment, bounds: Bounds) -> TimestampOffset | None:
    """Returns the youngest record of the batch that the segment's row names, if it still has it."""
    with segment.pinned() as file:
        start = position_before(segment, segment.offset_of_max_timestamp)
        for place in walk_batches(file, start, segment.size):
            if place.last_offset >= segment.offset_of_max_timestamp:
                for record in _records(file, place, bounds):
                    if record.timestamp == segment.max_timestamp:
                        return TimestampOffset(record.timestamp, Offset(record.offset))
                break
    return None


def _youngest_in(segment: Segment, bounds: Bounds) -> TimestampOffset | None:
    """Returns a segment's youngest record. Looks at every header; reads only batches that may win."""
    best: TimestampOffset | None = None
    with segment.pinned() as file:
        for place in walk_batches(file, START, segment.size):
            if place.base_offset >= bounds[1]:
                break
            if best is None or place.max_timestamp > best.timestamp:
                for record in _records(file, place, bounds):
                    if best is None or record.timestamp > best.timestamp:
                        best = TimestampOffset(record.timestamp, Offset(record.offset))
    return best


def _records(file: File, place: BatchPlace, bounds: Bounds) -> Sequence[Record]:
    """Returns a batch's records within the bounds."""
    start_offset, end_offset = bounds
    if not place.record_count or place.last_offset < start_offset:
        return ()
    records = read_records(
        file.read_at(place.position, place.size), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
    )
    return [record for record in records if start_offset <= record.offset < end_offset]

"""Which neighbouring segments are recopied into one: small ones merge, none outgrows its bounds.

A group's sources together stay within `segment.bytes`, their indexes within `segment.index.bytes`,
and the offsets within 2^31 - 1 of the group's base, because an index entry holds an int32. A single
segment is a group whatever its size. Pure.

Source: Apache Kafka, Cleaner.java `groupSegmentsBySize`; KAFKA-4451, KAFKA-6264.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage.manifest import SegmentRow

OFFSET_SPAN_MAX = (1 << 31) - 1
"""The largest last offset of a segment, relative to its base offset."""

INDEX_ENTRY_BYTES_MAX = 12
"""An entry of the time index; the offset index has smaller ones."""

BATCH_BYTES_MIN = 61
"""No batch is smaller, so neither is the distance of two index entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBounds:
    """What a group of segments may not exceed, from the topic's configuration."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int

    def index_bytes(self, segment_bytes: int) -> int:
        """The most that an index over so many bytes of batches takes."""
        distance = max(self.index_interval_bytes, BATCH_BYTES_MIN)
        return -(-segment_bytes // distance) * INDEX_ENTRY_BYTES_MAX

    def admit(self, group: list[SegmentRow], row: SegmentRow) -> bool:
        """Whether `row`, which follows `group`, may join it."""
        size = sum(member.size for member in group) + row.size
        return (
            size <= self.segment_bytes
            and self.index_bytes(size) <= self.segment_index_bytes
            and row.end_offset - 1 - group[0].base_offset <= OFFSET_SPAN_MAX
        )


def group_segments(
    rows: Iterable[SegmentRow], bounds: GroupBounds
) -> tuple[tuple[SegmentRow, ...], ...]:
    """Cut sealed segments, given in offset order, into groups that become one segment each."""
    groups: list[list[SegmentRow]] = []
    for row in rows:
        if groups and bounds.admit(groups[-1], row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple(tuple(group) for group in groups)

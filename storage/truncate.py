"""Cutting a log back: its intent is committed first, so that recovery can finish what a crash cut short.

    manifest with the shortened list and `truncate_to`   <- from here on the cut is certain
    segments past the cut retired, the new last one cut, indexes and producers set back
    manifest without the intent

On a worker thread, while nothing is appended. Every truncation raises the log's generation, so that a
cleaning pass planned before it cannot swap (seed 003: the generation counter).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.batch_walk import walk_batches
from storage.segment import Segment

if TYPE_CHECKING:
    from storage.log import PartitionLog


def kept_segments(log: PartitionLog, offset: int) -> tuple[Segment, ...]:
    """The segments that stay when the log is cut back to `offset`; the last one is cut itself."""
    return tuple(segment for segment in log.segments if segment.base_offset < offset)


def cut_point(segment: Segment, offset: int) -> tuple[int, int]:
    """Where to cut a segment so that no batch reaches `offset`: position and end offset."""
    with segment.pinned() as file:
        start = segment.index().position_at_or_before(offset - segment.base_offset)
        for place in walk_batches(file, start, segment.size):
            if place.last_offset >= offset:
                return place.position, min(place.base_offset, offset)
    return segment.size, min(segment.end_offset, offset)


def cut_segment(segment: Segment, position: int, end_offset: int) -> None:
    """Make a segment end there and be active again."""
    segment.unseal()
    segment.cut(position, end_offset)
    segment.file().sync()

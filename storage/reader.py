"""Find what a read at an offset may send: whole batches of one segment, as a file region.

    offset -> segment -> index -> first batch that holds records at or past it
           -> last whole batch within max_bytes and below the bound (high watermark)

An offset in a hole that compaction left is as good as any other: the next batch answers it. Leading
batches without records are skipped, because a client spins on an answer that has none (kafkajs).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from storage.batch_walk import BatchPlace, walk_batches
from storage.cached_reads import Reads
from storage.segment import Segment, SegmentRegion


class Isolation(enum.IntEnum):
    """What a reader may see; the values are the protocol's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """What one read found, and the log's numbers at that moment."""

    regions: tuple[SegmentRegion, ...]
    """Pinned: release each. Empty when there is nothing to read yet."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] = ()
    """Of what a reader of committed records is sent: producer and first offset of each transaction
    whose records it has to skip, from there to the producer's ABORT."""
    diverging_epoch: tuple[int, int] | None = None
    """Epoch and end offset that a reader has to go back to, whose log is not this one's."""

    def release(self) -> None:
        """Let go of the regions' segments; releasing twice is allowed."""
        for region in self.regions:
            region.release()


def first_segment_past(segments: Sequence[Segment], offset: int) -> int:
    """The index of the first segment that may hold `offset` or a later one."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].end_offset > offset:
            high = middle
        else:
            low = middle + 1
    return low


def find_region(
    segments: Sequence[Segment],
    offset: int,
    *,
    bound: int,
    max_bytes: int,
    whole_first_batch: bool,
    cached_only: bool,
) -> SegmentRegion | None:
    """The region that answers a read at `offset` below the offset `bound`; None if it is empty.

    It is in memory by then.

    Raises:
        NotCached: `cached_only`, and to find or to send it would have to wait for the disk.
        SegmentRemoved: the list of segments is out of date; take the log's new one.
    """
    for index in range(first_segment_past(segments, offset), len(segments)):
        segment = segments[index]
        if segment.base_offset >= bound:
            return None
        with segment.reading(cached_only=cached_only) as reads:
            end = _end_position(segment, reads, bound)
            first = _first_with_records(segment, reads, offset, end)
            if first is not None:
                region = _region(segment, reads, first, end, max_bytes, whole_first_batch)
                if region is not None:
                    region.end_offset = min(region.end_offset, bound)
                return region
    return None


def _end_position(segment: Segment, reads: Reads, bound: int) -> int:
    """Where the batches below the offset `bound` end in the segment."""
    size, end_offset = segment.size, segment.end_offset
    if end_offset <= bound:
        return size
    start = segment.position_before(bound, reads)
    for place in walk_batches(reads, start, size):
        if place.last_offset >= bound:
            return place.position
    return size


def _first_with_records(segment: Segment, reads: Reads, offset: int, end: int) -> BatchPlace | None:
    start = 0
    if offset > segment.base_offset:
        start = segment.position_before(offset, reads)
    for place in walk_batches(reads, start, end):
        if place.last_offset >= offset and place.record_count > 0:
            return place
    return None


def _region(
    segment: Segment, reads: Reads, first: BatchPlace, end: int, max_bytes: int, whole_first: bool
) -> SegmentRegion | None:
    """Whole batches from `first` on, at most `max_bytes` of them, or `first` alone."""
    limit = first.position + max_bytes
    end_offset = segment.end_offset
    if limit < end:
        end, end_offset = _last_boundary(segment, reads, first, limit)
    if end == first.position:
        if not whole_first:
            return None
        end, end_offset = first.end_position, first.last_offset + 1
    reads.make_ready(first.position, end - first.position)
    return SegmentRegion(segment, first.position, end - first.position, end_offset=end_offset)


def _last_boundary(
    segment: Segment, reads: Reads, first: BatchPlace, limit: int
) -> tuple[int, int]:
    """The last batch boundary in [first, limit], and the offset up to which it is one."""
    if first.end_position > limit:
        return first.position, first.base_offset
    start = max(first.position, segment.boundary_before(limit, reads))
    boundary = start
    for place in walk_batches(reads, start, segment.size):
        if place.end_position > limit:
            return boundary, place.base_offset
        boundary = place.end_position
    return boundary, segment.end_offset

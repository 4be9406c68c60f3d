"""Finds the bytes that answer a read at an offset: whole batches of one segment, as a file region.

    offset -> segment -> index -> first batch at or past it
           -> last whole batch within max_bytes and below the bound (high watermark)

An offset in a hole that compaction left is valid: the next batch answers it. For clients leading batches
without records are skipped, because a client spins on an answer without records (kafkajs). A follower
needs them: each is the last batch of a producer, or covers a gap.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.records.batch_header import HEADER_BYTES, read_header
from protocol.wire.numbers import Epoch, Offset, Position, ProducerId
from storage.batches.cached_reads import Reads
from storage.batches.walk import BatchPlace, walk_batches
from storage.files.errors import NotCached
from storage.segment.lookup import START, boundary_before, position_before
from storage.segment.segment import Segment


class Isolation(enum.IntEnum):
    """A reader's isolation level; the values are the protocol's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class SegmentRegion:
    """A byte range of a segment's file, readable until it is released.

    `end_offset` is the offset after its last batch, or a later one.
    """

    __slots__ = ("_files", "_is_released", "end_offset", "position", "size")

    def __init__(
        self, segment: Segment, position: Position, size: int, *, end_offset: Offset
    ) -> None:
        segment.files.pin()
        self._files = segment.files
        self._is_released = False
        self.position = position
        self.size = size
        self.end_offset = end_offset

    @property
    def fileno(self) -> int:
        """The descriptor to send from."""
        return self._files.open().fileno()

    def read_bytes(self) -> bytes:
        """Returns the region's bytes, for readers that don't send files."""
        return self._files.open().read_at(self.position, self.size)

    def read_cached(self) -> memoryview:
        """Returns the region's bytes without waiting for the disk.

        Raises:
            NotCached: some of them are not in memory, or are gone: a log was cut.
            DiskError: they cannot be read.
        """
        file = self._files.open()
        data = file.read_cached(self.position, self.size)
        if len(data) < self.size:
            raise NotCached(file.path)
        return memoryview(data)

    def release(self) -> None:
        """Release the segment. Releasing twice is allowed."""
        if not self._is_released:
            self._is_released = True
            self._files.unpin()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The result of one read, with the log's offsets at that moment."""

    regions: tuple[SegmentRegion, ...]
    """Pinned: the receiver releases each. Empty when there is nothing to read yet."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: Sequence[tuple[ProducerId, Offset]] = ()
    """For read_committed: the producer and first offset of each transaction whose records the reader has
    to skip, from there to the producer's ABORT."""
    diverging_epoch: tuple[Epoch, Offset] | None = None
    """The epoch and end offset to which a reader must truncate whose log diverges from this one."""

    @property
    def size(self) -> int:
        """The size of the records in bytes."""
        return sum([region.size for region in self.regions])

    def copied(self) -> bytes | memoryview:
        """Returns a copy of the records, which are in at most one region, and releases its segment.

        Raises:
            NotCached, DiskError: like `SegmentRegion.read_cached`; nothing is released.
        """
        copy: bytes | memoryview = b""
        for region in self.regions:
            copy = region.read_cached()
        self.release()
        return copy

    def release(self) -> None:
        """Release the regions' segments. Releasing twice is allowed."""
        for region in self.regions:
            region.release()


def first_segment_past(segments: Sequence[Segment], offset: Offset) -> int:
    """Returns the index of the first segment that may hold `offset` or a later one."""
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
    offset: Offset,
    *,
    bound: Offset,
    max_bytes: int,
    whole_first_batch: bool,
    with_empty_batches: bool,
    cached_only: bool,
) -> SegmentRegion | None:
    """Returns the region that answers a read at `offset` below the offset `bound`; None if it is empty.

    The region's bytes are in the page cache.

    Args:
        with_empty_batches: let it begin with batches without records, for a follower.

    Raises:
        NotCached: `cached_only` is set, and finding or sending the region would wait for the disk.
        SegmentRemoved: the list of segments is out of date; take the log's new one.
    """
    for index in range(first_segment_past(segments, offset), len(segments)):
        segment = segments[index]
        if segment.base_offset >= bound:
            return None
        with segment.reading(cached_only=cached_only) as reads:
            end = _end_position(segment, reads, bound)
            first = _first_batch(segment, reads, offset, end, with_empty_batches)
            if first is not None:
                region = _region(segment, reads, first, end, max_bytes, whole_first_batch)
                if region is not None:
                    region.end_offset = min(region.end_offset, bound)
                return region
    return None


def _end_position(segment: Segment, reads: Reads, bound: Offset) -> Position:
    """Returns where the batches below the offset `bound` end in the segment."""
    size, end_offset = Position(segment.size), segment.end_offset
    if end_offset <= bound:
        return size
    start = position_before(segment, bound, reads)
    for place in walk_batches(reads, start, size):
        if place.last_offset >= bound:
            return place.position
    return size


def _first_batch(
    segment: Segment, reads: Reads, offset: Offset, end: Position, with_empty_batches: bool
) -> BatchPlace | None:
    start = START
    if offset > segment.base_offset:
        start = position_before(segment, offset, reads)
    for place in walk_batches(reads, start, end):
        if place.last_offset < offset:
            continue
        if place.record_count > 0 or (with_empty_batches and _continues(place, reads, offset)):
            return place
    return None


def _continues(empty: BatchPlace, reads: Reads, offset: Offset) -> bool:
    """Returns whether a batch without records says something to a follower whose log ends at `offset`.

    One that covers a gap in which that log ends does not: the follower may have the first part of the
    gap as another batch, and this one would not continue its log.
    """
    if empty.base_offset >= offset:
        return True
    header = read_header(reads.read_at(empty.position, HEADER_BYTES))
    return header.producer_id >= 0


def _region(
    segment: Segment,
    reads: Reads,
    first: BatchPlace,
    end: Position,
    max_bytes: int,
    whole_first: bool,
) -> SegmentRegion | None:
    """Returns the region of whole batches from `first` on, at most `max_bytes`, or of `first` alone."""
    limit = Position(first.position + max_bytes)
    end_offset = segment.end_offset
    if limit < end:
        end, end_offset = _last_boundary(segment, reads, first, limit)
    if end == first.position:
        if not whole_first:
            return None
        end, end_offset = Position(first.end_position), Offset(first.last_offset + 1)
    reads.make_ready(first.position, end - first.position)
    return SegmentRegion(segment, first.position, end - first.position, end_offset=end_offset)


def _last_boundary(
    segment: Segment, reads: Reads, first: BatchPlace, limit: Position
) -> tuple[Position, Offset]:
    """Returns the last batch boundary in [first, limit], and the offset at that boundary."""
    if first.end_position > limit:
        return first.position, first.base_offset
    start = max(first.position, boundary_before(segment, limit, reads))
    boundary: int = start
    for place in walk_batches(reads, start, segment.size):
        if place.end_position > limit:
            return place.position, place.base_offset
        boundary = place.end_position
    return Position(boundary), segment.end_offset

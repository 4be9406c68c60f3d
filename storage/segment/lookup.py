"""Finds positions in a segment by its indexes, which say where to look and may be wrong.

An entry from an index file is used only if the batch at its position is the one that the entry names.
Otherwise the index is rebuilt from the batches. Entries that were added with the batches need no check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from protocol.records.batch_header import HEADER_BYTES
from protocol.wire.numbers import Offset, Position, RelativeOffset
from storage.batches.cached_reads import Reads
from storage.batches.walk import BatchPlace, last_offset_in, walk_batches
from storage.files.errors import NotCached
from storage.files.files import File
from storage.files.paths import OFFSET_INDEX, TIME_INDEX
from storage.formats.segment_index import Entry, SegmentIndex
from storage.segment.sealed_index import SealedIndex

_log = logging.getLogger("storage.segment.lookup")

START = Position(0)
"""Where the first batch of a segment begins."""

Lookup: TypeAlias = SegmentIndex | SealedIndex


class IndexedSegment(Protocol):
    """The parts of a segment that this module uses."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def size(self) -> int: ...
    def path(self, kind: str) -> str: ...
    def pinned(self) -> AbstractContextManager[File]: ...
    def reading(self, *, cached_only: bool) -> AbstractContextManager[Reads]: ...
    def lookup(self) -> Lookup:
        """Returns the index for lookups: entries in memory, or the files of a sealed segment."""

    def cached_lookup(self) -> Lookup:
        """Returns the same as `lookup`, from memory only. Raises NotCached."""

    def trusts(self, index: Lookup) -> bool:
        """Returns whether the index was built from the batches, so that its entries need no check."""

    def rebuilt_index(self) -> SegmentIndex:
        """Rebuild the indexes from the batches, in memory."""


def position_before(
    segment: IndexedSegment, offset: Offset, reads: Reads | None = None
) -> Position:
    """Returns a position from which to look for the batch of `offset` or the next; 0 if unknown.

    With `reads`, which read this segment, it waits only if they may, and else raises NotCached.
    """
    relative = RelativeOffset(offset - segment.base_offset)
    return _position_of(segment, lambda index: index.entry_at_or_before(relative), reads)


def claimed_position_before(
    segment: IndexedSegment, offset: Offset, reads: Reads
) -> tuple[Position, Offset | None]:
    """Returns what the index says, like `position_before`, without a look at the batch there.

    The caller has to check that this batch has the last offset that comes with it; None: no check is
    needed. Raises NotCached, as `position_before`.
    """
    index = segment.lookup() if reads.may_wait else segment.cached_lookup()
    entry = index.entry_at_or_before(RelativeOffset(offset - segment.base_offset))
    if entry is None:
        return START, None
    last_offset = None if segment.trusts(index) else Offset(segment.base_offset + entry[0])
    return entry[1], last_offset


def batch_at(segment: IndexedSegment, offset: Offset, size: int, reads: Reads) -> BatchPlace | None:
    """Returns the first batch that ends at or above `offset`; None if the segment has none.

    Args:
        size: of the part of the segment's file to look in.
        reads: read this segment; see `position_before`.

    Raises:
        CorruptLog: a batch on the way is damaged.
        NotCached: `reads` may not wait, and bytes are not in memory.
    """
    for place in walk_batches(reads, position_before(segment, offset, reads), size):
        if place.last_offset >= offset:
            return place
    return None


def boundary_before(
    segment: IndexedSegment, position: Position, reads: Reads | None = None
) -> Position:
    """Returns the start of a batch at or shortly before `position`; `reads` as above."""
    return _position_of(segment, lambda index: index.entry_up_to_position(position), reads)


def position_before_timestamp(segment: IndexedSegment, timestamp: int) -> Position:
    """Returns a position before which every record is older than `timestamp`."""
    index = segment.lookup()
    entry = index.entry_before_timestamp(timestamp)
    if entry is None:
        return START
    if not segment.trusts(index) and not _is_youngest_of_batch(segment, *entry):
        _log.warning(
            "time index %s is inconsistent with the log; rebuilding it", segment.path(TIME_INDEX)
        )
        entry = segment.rebuilt_index().entry_before_timestamp(timestamp)
    return (
        START if entry is None else position_before(segment, Offset(segment.base_offset + entry[1]))
    )


def _position_of(
    segment: IndexedSegment, find: Callable[[Lookup], Entry | None], reads: Reads | None
) -> Position:
    """Returns an entry's position, after checking that the batch there is the entry's."""
    may_wait = reads is None or reads.may_wait
    index = segment.lookup() if may_wait else segment.cached_lookup()
    entry = find(index)
    if entry is None:
        return START
    if not segment.trusts(index) and not _is_batch(segment, entry[1], entry[0], reads):
        if not may_wait:
            raise NotCached(segment.path(OFFSET_INDEX))
        _log.warning(
            "offset index %s is inconsistent with the log; rebuilding it",
            segment.path(OFFSET_INDEX),
        )
        entry = find(segment.rebuilt_index())
    return START if entry is None else entry[1]


def _is_batch(
    segment: IndexedSegment,
    position: Position,
    relative_last_offset: RelativeOffset,
    reads: Reads | None,
) -> bool:
    """Returns whether a batch with that last offset begins at `position` in the file."""
    if reads is None:
        with segment.reading(cached_only=False) as reads:
            return _is_batch(segment, position, relative_last_offset, reads)
    found = last_offset_in(reads.read_at(position, HEADER_BYTES))
    return found == segment.base_offset + relative_last_offset


def _is_youngest_of_batch(
    segment: IndexedSegment, timestamp: int, relative_last_offset: RelativeOffset
) -> bool:
    """Returns whether there is a batch with that last offset and that largest timestamp."""
    last_offset = Offset(segment.base_offset + relative_last_offset)
    with segment.pinned() as file:
        for place in walk_batches(file, position_before(segment, last_offset), segment.size):
            if place.last_offset >= last_offset:
                return (place.last_offset, place.max_timestamp) == (last_offset, timestamp)
    return False

"""Find a key's records in a segment by its key sidecar: only the batches that hold one are read.

The sidecar tells by the key's hash where its records are, the finder then meets them in the segment and
compares their keys. If it does not meet as many as the sidecar tells, the sidecar is not believed.
Where batches of transactions are about, whole blocks are read, for the markers that decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from cleaner.find_key import KeyFinder
from cleaner.meter import PassMeter
from cleaner.scan import read_exactly
from cleaner.step import Decision
from storage.batch_walk import walk_batches
from storage.cleaning_view import CleanableSegment
from storage.errors import DamagedSidecar
from storage.key_sidecar import (
    CHECKSUM_BYTES,
    ENTRY,
    HEAD,
    SPECIAL,
    TOMBSTONE,
    KeyBlock,
    KeySidecar,
)

BATCHES_MAX = 16
"""With more hits in a block, it is read as a whole: that is faster."""

HASH_BYTES = 16
"""An entry begins with the key's hash, then comes the offset."""

ID_AT = 8
"""Where the producer's id stands in a special row; its epoch and the kind follow."""


class SidecarNotBelieved(Exception):
    """A segment's sidecar is damaged, or says what its segment does not hold: read the segment."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the key sidecar of segment {base_offset} is not believed")
        self.base_offset = base_offset


class SidecarSearch:
    """The search in one segment."""

    __slots__ = ("_finder", "_key_hash", "_met_offset", "_meter", "_segment", "_sidecar")

    def __init__(
        self,
        segment: CleanableSegment,
        sidecar: KeySidecar,
        finder: KeyFinder,
        *,
        key_hash: bytes,
        meter: PassMeter,
    ) -> None:
        # Constant after construction.
        self._segment = segment
        self._sidecar = sidecar
        self._finder = finder
        self._key_hash = key_hash
        self._meter = meter
        # State.
        self._met_offset = -1
        """The last offset of the last batch that was read for itself."""

    def run(self) -> None:
        """Let the finder meet what the segment has of its key.

        Raises:
            SidecarNotBelieved: the finder means nothing any more.
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        """
        undecided = undecided_producers(self._finder)
        try:
            for block in self._sidecar.blocks():
                self._meter.read(len(block.data))
                hits = entries_of(block, self._key_hash)
                if hits or has_marker_of(block, undecided):
                    self._meet(block, hits)
                    # Elsewhere nothing of a transaction was met.
                    if block.special_count:
                        undecided = undecided_producers(self._finder)
        except DamagedSidecar as error:
            raise SidecarNotBelieved(self._segment.row.base_offset) from error

    def _meet(self, block: KeyBlock, hits: list[int]) -> None:
        """Read what the block has of the key; its offsets are relative to the segment's base."""
        before = self._finder.count
        if block.special_count or len(hits) > BATCHES_MAX:
            self._feed(block.position, block.data_bytes)
        else:
            for hit in hits:
                self._meet_batch_of(self._segment.row.base_offset + hit, block)
        if self._finder.count - before != len(hits):
            raise SidecarNotBelieved(self._segment.row.base_offset)

    def _meet_batch_of(self, offset: int, block: KeyBlock) -> None:
        """Read the batch that holds an offset, unless it was read for the hit before."""
        if offset <= self._met_offset:
            return
        start = max(self._segment.segment.position_before(offset), block.position)
        with self._segment.segment.pinned() as file:
            for place in walk_batches(file, start, block.position + block.data_bytes):
                if place.last_offset >= offset:
                    self._feed(place.position, place.size)
                    self._met_offset = place.last_offset
                    return

    def _feed(self, position: int, size: int) -> None:
        data = read_exactly(self._segment, position, size)
        self._meter.read(size)
        if self._finder.feed(data, position=position).consumed_bytes != size:
            raise SidecarNotBelieved(self._segment.row.base_offset)


def entries_of(block: KeyBlock, key_hash: bytes) -> list[int]:
    """The offsets of a key's records in a block, relative to the segment's base offset. Pure."""
    data = bytes_of(block.data)
    return [
        int.from_bytes(data[at + HASH_BYTES : at + HASH_BYTES + 4], "big") & ~TOMBSTONE
        for at in _places(data, key_hash, block.entries_at)
        if (at - block.entries_at) % ENTRY.size == 0
    ]


def bytes_of(view: memoryview) -> bytes:
    """The bytes of a view, not copied where it is one of all bytes of a bytes object."""
    whole = view.obj
    return whole if isinstance(whole, bytes) and len(whole) == len(view) else bytes(view)


def _places(data: bytes, sought: bytes, start: int) -> Iterator[int]:
    end = len(data) - CHECKSUM_BYTES
    at = data.find(sought, start, end)
    while at >= 0:
        yield at
        at = data.find(sought, at + 1, end)


def has_marker_of(block: KeyBlock, producers: Collection[int]) -> bool:
    """Whether a transaction of one of these producers ends in a block. Pure."""
    if not producers or not block.special_count:
        return False
    rows = bytes(block.data[HEAD.size : block.entries_at])
    ids = b"|".join(re.escape(each.to_bytes(8, "big", signed=True)) for each in producers)
    marker = re.compile(b"(?:" + ids + b")..[\x02\x03]", re.DOTALL)
    return any(found.start() % SPECIAL.size == ID_AT for found in marker.finditer(rows))


def undecided_producers(finder: KeyFinder) -> frozenset[int]:
    """The producers whose markers the finder still has to meet."""
    return frozenset(
        hit.producer_id
        for hit in finder.hits
        if hit.decision is Decision.OPEN and hit.producer_id is not None
    )

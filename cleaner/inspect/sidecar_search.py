"""Find a key's records in a segment by its key sidecar; only the batches with such a record are read.

The sidecar has the offsets of the records with the key's hash; the finder then reads these batches and
compares the keys. If it does not find as many records as the sidecar has entries, the sidecar is
distrusted. Blocks with transactional batches are read completely, because their markers decide about the
records.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from cleaner.kernel.find_key import KeyFinder
from cleaner.pacing.meter import PassMeter
from cleaner.passes.scan import read_exactly
from cleaner.rules.step import Decision
from protocol.wire.numbers import Offset, Position
from storage.batches.walk import walk_batches
from storage.files.errors import DamagedSidecar
from storage.formats.key_sidecar import (
    ENTRY,
    HEAD,
    SPECIAL,
    TOMBSTONE,
    KeyBlock,
    KeySidecar,
)
from storage.log.cleaning_view import CleanableSegment
from storage.segment.lookup import position_before

BATCHES_MAX = 16
"""A block with more hits is read completely, which is faster."""

HASH_BYTES = 16
"""An entry begins with the key's hash; the offset follows."""

ID_AT = 8
"""The position of the producer id in a special row; its epoch and the kind follow."""


class SidecarMismatch(Exception):
    """A sidecar is damaged or does not match its segment: read the whole segment instead."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the key sidecar of segment {base_offset} does not match it")
        self.base_offset = base_offset


class SidecarSearch:
    """The search for a key in one segment."""

    __slots__ = ("_finder", "_key_hash", "_last_read_offset", "_meter", "_segment", "_sidecar")

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
        self._last_read_offset = -1
        """The last offset of the last batch that was read alone."""

    def run(self) -> None:
        """Feed the finder with the segment's batches that may hold its key.

        Raises:
            SidecarMismatch: the sidecar is wrong, and the finder's results are invalid.
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
        """
        undecided = undecided_producers(self._finder)
        try:
            for block in self._sidecar.blocks():
                self._meter.read(len(block.data))
                hits = entries_of(block, self._key_hash)
                if hits or has_marker_of(block, undecided):
                    self._search_block(block, hits)
                    # Other blocks have no transactional records.
                    if block.special_count:
                        undecided = undecided_producers(self._finder)
        except DamagedSidecar as error:
            raise SidecarMismatch(self._segment.row.base_offset) from error

    def _search_block(self, block: KeyBlock, hits: list[int]) -> None:
        """Read the batches of a block that hold the key; `hits` are relative to the base offset."""
        before = self._finder.count
        if block.special_count or len(hits) > BATCHES_MAX:
            self._feed(block.position, block.data_bytes)
        else:
            for hit in hits:
                self._search_batch_at(Offset(self._segment.row.base_offset + hit), block)
        if self._finder.count - before != len(hits):
            raise SidecarMismatch(self._segment.row.base_offset)

    def _search_batch_at(self, offset: Offset, block: KeyBlock) -> None:
        """Read the batch that holds an offset, unless the previous hit was in the same batch."""
        if offset <= self._last_read_offset:
            return
        start = max(position_before(self._segment.segment, offset), Position(block.position))
        with self._segment.segment.pinned() as file:
            for place in walk_batches(file, start, block.position + block.data_bytes):
                if place.last_offset >= offset:
                    self._feed(place.position, place.size)
                    self._last_read_offset = place.last_offset
                    return

    def _feed(self, position: int, size: int) -> None:
        data = read_exactly(self._segment, position, size)
        self._meter.read(size)
        if self._finder.feed(data, position=position).consumed_bytes != size:
            raise SidecarMismatch(self._segment.row.base_offset)


def entries_of(block: KeyBlock, key_hash: bytes) -> list[int]:
    """Returns the offsets of a key's records in a block, relative to the base offset. Pure."""
    data = bytes_of(block.data)
    return [
        int.from_bytes(data[at + HASH_BYTES : at + HASH_BYTES + 4], "big") & ~TOMBSTONE
        for at in _find_all(data, key_hash, block.entries_at, block.versions_at)
        if (at - block.entries_at) % ENTRY.size == 0
    ]


def bytes_of(view: memoryview) -> bytes:
    """Returns the bytes of a view, without a copy if it covers a whole bytes object."""
    whole = view.obj
    return whole if isinstance(whole, bytes) and len(whole) == len(view) else bytes(view)


def _find_all(data: bytes, sought: bytes, start: int, end: int) -> Iterator[int]:
    at = data.find(sought, start, end)
    while at >= 0:
        yield at
        at = data.find(sought, at + 1, end)


def has_marker_of(block: KeyBlock, producers: Collection[int]) -> bool:
    """Returns whether a transaction of one of these producers ends in a block. Pure."""
    if not producers or not block.special_count:
        return False
    rows = bytes(block.data[HEAD.size : block.entries_at])
    ids = b"|".join(re.escape(each.to_bytes(8, "big", signed=True)) for each in producers)
    marker = re.compile(b"(?:" + ids + b")..[\x02\x03]", re.DOTALL)
    return any(found.start() % SPECIAL.size == ID_AT for found in marker.finditer(rows))


def undecided_producers(finder: KeyFinder) -> frozenset[int]:
    """Returns the producers of the finder's hits that still lack a marker."""
    return frozenset(
        hit.producer_id
        for hit in finder.hits
        if hit.decision is Decision.OPEN and hit.producer_id is not None
    )

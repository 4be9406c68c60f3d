"""A table of a log's keys: for each the offset of its last record, by the topic's rule.

    key sidecars, or the records of segments without one   ->   hash of a key -> offset

It holds the records of the log below `end_offset`, which is the last stable offset at the latest
`extend`: those of transactions enter with their outcome. Passes change no offset, so the table stays
right when they replace segments: they keep the last record of each key, or drop it as an old tombstone;
then nothing is found at its offset. docs/design/get.md says more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from cleaner.kernel.kernel import (
    DeadOffsets,
    KeyIndexer,
    LatestFilter,
    OffsetMap,
    Transactions,
    map_last_keys,
)
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import MAP_ENTRY_BYTES, VERSION_BYTES, CleanerSettings
from cleaner.passes.index import indexed_blocks
from cleaner.rules.text import size_text
from protocol.wire.numbers import Offset
from storage.files.errors import DamagedSidecar, MissingFile
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.key_sidecar import KeySidecar
from storage.log.cleaning_view import CleanableSegment, TailView
from storage.log.log import PartitionLog
from storage.segment.lookup import position_before
from storage.threads import loop_thread

LOAD_FACTOR = 0.9
SPILL_SLOTS = 1024
"""Slots at the end of the offset map that are no key's first choice (`KP_SPILL_MAX`)."""

KEYS_MIN = 1 << 12
"""A table has room for so many keys at least."""

GUESSED_KEYS_MAX = 1 << 17
"""So many distinct keys are expected at first among records that no pass has seen; the table doubles
when there are more."""


BLOCK_SHIFT_MIN = 6
BLOCKS_MAX = 1 << 20
"""A table notes by blocks of 64 offsets what is not the last record of its key. If the log has more than
so many of them, which take 128 KiB, its blocks are larger."""


class TableTooSmall(Exception):
    """The keys do not fit. Make another table with `bytes_needed`."""

    def __init__(self, bytes_needed: int) -> None:
        super().__init__(f"the keys need {size_text(bytes_needed)}")
        self.bytes_needed = bytes_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """What a table reads of a log, at one moment."""

    hash_key: bytes
    strategy: CompactionStrategy
    tail: TailView
    """The segments with offsets that the table lacks."""

    @property
    def basis(self) -> TableBasis:
        """Returns on what a table depends that is made of this."""
        start = self.tail.log_start_offset if self.strategy.has_versions else Offset(0)
        return TableBasis(self.strategy, self.tail.rewrites, start)


@dataclass(frozen=True, slots=True)
class TableBasis:
    """On what a table depends: with another one it has to be made again."""

    strategy: CompactionStrategy
    rewrites: int
    log_start_offset: Offset
    """Where records have versions: one below the start may have outranked others. Else 0."""


@loop_thread
def table_view(log: PartitionLog, from_offset: Offset) -> TableView:
    """Returns what a table reads that has the offsets below `from_offset`."""
    return TableView(
        hash_key=log.identity.hash_key,
        strategy=log.config.strategy,
        tail=log.tail_view(from_offset),
    )


def first_table_bytes(view: TableView) -> int:
    """Returns the memory for a first table of a whole log. Pure.

    A cleaned record is likely the only one of its key; how many keys others have is not known.
    """
    rows = [each.row for each in view.tail.segments]
    clean = sum(row.record_count for row in rows if row.end_offset <= view.tail.clean_offset)
    others = sum(row.record_count for row in rows if row.end_offset > view.tail.clean_offset)
    keys = max(clean, 0) + min(max(others, 0), GUESSED_KEYS_MAX)
    return table_bytes(max(keys, KEYS_MIN), view.strategy)


def table_bytes(keys: int, strategy: CompactionStrategy) -> int:
    """Returns the memory that a table for so many keys takes. Pure."""
    slot_bytes = MAP_ENTRY_BYTES + VERSION_BYTES * strategy.has_versions
    return (ceil(keys / LOAD_FACTOR) + 1 + SPILL_SLOTS) * slot_bytes


def dead_offsets(tail: TailView) -> DeadOffsets:
    """Returns the notes about a log, without any. Pure."""
    shift, offsets = BLOCK_SHIFT_MIN, tail.last_stable_offset - tail.log_start_offset
    while offsets >> shift > BLOCKS_MAX:
        shift += 1
    return DeadOffsets(start_offset=tail.log_start_offset, shift=shift)


class KeyTable:
    """The table of one log. For one thread at a time."""

    __slots__ = ("_dead", "_map", "_settings", "_trusts_sidecars", "basis", "end_offset", "swaps")

    def __init__(
        self,
        view: TableView,
        settings: CleanerSettings,
        *,
        bytes_max: int,
        trusts_sidecars: bool = True,
    ) -> None:
        """Make an empty table; `extend` fills it.

        Args:
            bytes_max: the memory that it may take.
            trusts_sidecars: False reads all segments instead.
        """
        # Constant after construction.
        self._settings = settings
        self._trusts_sidecars = trusts_sidecars
        self._map = OffsetMap(
            bytes_max, view.hash_key, LOAD_FACTOR, has_versions=view.strategy.has_versions
        )
        self._dead = dead_offsets(view.tail)
        self.basis = view.basis
        self.swaps = view.tail.swaps
        """The swaps of the log when the table was made."""
        # State.
        self.end_offset = Offset(0)
        """Records below it are in the table."""

    def reaches(self, least: Offset, log: PartitionLog) -> bool:
        """Returns whether the table holds, and has the log's records below `least`. On the loop."""
        basis = self.basis
        return (
            self.end_offset >= least
            and log.rewrites == basis.rewrites
            and log.config.strategy == basis.strategy
            and (not basis.strategy.has_versions or log.log_start_offset == basis.log_start_offset)
        )

    @property
    def memory_bytes(self) -> int:
        return self._map.memory_bytes

    def offset_of(self, key: bytes) -> Offset | None:
        """Returns the offset of a key's last record; None if it has none. The record may be gone."""
        offset = self._map.get(key)
        return None if offset is None else Offset(offset)

    def is_current(self, log: PartitionLog) -> bool:
        """Returns whether no pass may have dropped a tombstone that still outranks others here."""
        return not self.basis.strategy.has_versions or log.swaps == self.swaps

    def live_until(self, offset: Offset) -> Offset:
        """Returns up to where everything from an offset on is the last record of its key, and not in a
        transaction: at most the table's end. It may be the offset itself."""
        return Offset(self._dead.next_dead(offset, self.end_offset))

    def latest_filter(
        self,
        start_offset: Offset,
        *,
        decompressed_bytes_max: int,
        codec_levels: tuple[int | None, ...],
    ) -> LatestFilter:
        """Returns a filter that copies the last records from an offset on. Do not extend the table
        while it is used."""
        return LatestFilter(
            self._map,
            start_offset=start_offset,
            decompressed_bytes_max=decompressed_bytes_max,
            codec_levels=codec_levels,
        )

    def extend(self, view: TableView, meter: PassMeter) -> None:
        """Put in what the log has from `end_offset` to its last stable offset. For a worker thread.

        After an error the table must not be used again.

        Raises:
            TableTooSmall: the keys do not fit.
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
            SegmentRemoved: a pass or retention has removed a segment meanwhile; retry with a new view.
            DamagedSidecar: a sidecar is damaged; the next pass removes it. Retry without sidecars.
        """
        assert view.basis == self.basis
        sources = [
            _Source(
                each,
                view,
                self._settings,
                meter,
                from_offset=self.end_offset,
                trusts_sidecar=self._trusts_sidecars,
            )
            for each in view.tail.segments
            if each.row.size and each.row.end_offset > self.end_offset
        ]
        transactions = self._outcomes(sources, view)
        start_offset = max(self.end_offset, self.basis.log_start_offset)
        for source in sources:
            if source.base_offset >= view.tail.last_stable_offset:
                break
            for block in source.blocks():
                fits = map_last_keys(
                    block,
                    self._map,
                    self._dead,
                    base_offset=source.base_offset,
                    segment_end_offset=source.end_offset,
                    start_offset=start_offset,
                    end_offset=view.tail.last_stable_offset,
                    transactions=transactions,
                )
                if not fits:
                    raise TableTooSmall(2 * self.memory_bytes)
        self.end_offset = view.tail.last_stable_offset

    def _outcomes(self, sources: Sequence[_Source], view: TableView) -> Transactions | None:
        """Returns the outcomes of the transactions; None if there can be none.

        All transactional records left below the clean offset were committed, though their markers may be
        gone. A transaction below the last stable offset may have its marker above it, hence the high
        watermark.
        """
        start_offset = max(self.end_offset, view.tail.clean_offset)
        walked = [
            each
            for each in sources
            if each.may_have_transactions
            and each.end_offset > start_offset
            and each.base_offset < view.tail.high_watermark
        ]
        if not walked:
            return None
        found = Transactions(start_offset=start_offset, end_offset=view.tail.high_watermark)
        for source in walked:
            for block in source.blocks():
                if not found.walk(block, base_offset=source.base_offset):
                    return found
        return found


class _Source:
    """The blocks of a segment from an offset on: of its key sidecar, or made while it is read."""

    __slots__ = ("_from_offset", "_meter", "_segment", "_settings", "_sidecar", "_view")

    def __init__(
        self,
        segment: CleanableSegment,
        view: TableView,
        settings: CleanerSettings,
        meter: PassMeter,
        *,
        from_offset: Offset,
        trusts_sidecar: bool,
    ) -> None:
        self._segment = segment
        self._view = view
        self._settings = settings
        self._meter = meter
        self._from_offset = from_offset
        self._sidecar = self._opened() if trusts_sidecar else None

    @property
    def base_offset(self) -> Offset:
        return self._segment.row.base_offset

    @property
    def end_offset(self) -> Offset:
        return self._segment.row.end_offset

    @property
    def may_have_transactions(self) -> bool:
        return self._sidecar is None or self._sidecar.totals.special_rows > 0

    def blocks(self) -> Iterator[memoryview | bytes]:
        """Yields the blocks, in order. They may begin before the offset. Raises as `KeyTable.extend`."""
        return self._made_blocks() if self._sidecar is None else self._stored_blocks(self._sidecar)

    def _opened(self) -> KeySidecar | None:
        with suppress(MissingFile, DamagedSidecar):
            return self._segment.open_key_sidecar(self._view.hash_key, self._view.strategy)
        return None

    def _stored_blocks(self, sidecar: KeySidecar) -> Iterator[memoryview]:
        for block in sidecar.blocks():
            self._meter.read(len(block.data))
            yield block.data

    def _made_blocks(self) -> Iterator[bytes]:
        indexer = KeyIndexer(
            self._view.hash_key,
            base_offset=self.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
            strategy=self._view.strategy,
        )
        start = 0
        if self.base_offset < self._from_offset:
            start = position_before(self._segment.segment, self._from_offset)
        return indexed_blocks(
            self._segment,
            indexer,
            chunk_bytes=self._settings.chunk_bytes,
            meter=self._meter,
            start=start,
        )

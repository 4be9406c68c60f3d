"""A table of a log's keys: for each the offset of its last record, by the topic's rule.

    key sidecars, or the records of segments without one   ->   hash of a key -> offset

It holds the records of the log below `end_offset`, which is the last stable offset at the latest
`extend`: those of transactions enter with their outcome. Passes change no offset, so the table stays
right when they replace segments: they keep the last record of each key, or drop it as an old tombstone;
then nothing is found at its offset. docs/design/get.md says more.

If the keys do not fit into memory, they go to a file in the order of their hashes whenever the table is
full (`spilled_keys.py`); then the table in memory has what came since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from cleaner.kernel.kernel import (
    LatestFilter,
    OffsetMap,
    Transactions,
    entry_hashes,
    map_keys,
    offset_at,
    siphash128,
)
from cleaner.lookup.dead_notes import DeadNotes
from cleaner.lookup.segment_keys import SegmentKeys
from cleaner.lookup.spilled_filter import SpilledFilter
from cleaner.lookup.spilled_keys import SpilledKeys, merged
from cleaner.lookup.table_view import TableView
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import MAP_ENTRY_BYTES, VERSION_BYTES, CleanerSettings
from cleaner.rules.latest import Rank, wins
from cleaner.rules.text import size_text
from protocol.wire.numbers import Offset
from storage.files.files import FileSystem
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.manifest import SegmentRow
from storage.log.cleaning_view import CleanableSegment
from storage.log.log import PartitionLog

LOAD_FACTOR = 0.9
SPILL_SLOTS = 1024
"""Slots at the end of the offset map that are no key's first choice (`KP_SPILL_MAX`)."""

PLACES_SHARE = 8
"""An eighth of the memory of a table that spills is for what says where in the file a key is."""

COMPARED_MIN, COMPARED_SHARE = 4_096, 1_000
"""So many new keys are compared with the disk one by one, or a thousandth of those that are there. If
there are more, a merge takes less time, though it writes the whole file again."""

KEYS_MIN = 1 << 12
"""A table has room for so many keys at least."""

GUESSED_KEYS_MAX = 1 << 17
"""So many distinct keys are expected at first among records that no pass has seen; the table doubles
when there are more."""

NOTES_SHARE = 64
NOTES_BYTES_MAX = 256 << 10
"""A 64th of a table's memory, and at most this, is for notes of what is not a key's last record."""


class TableTooSmall(Exception):
    """The keys do not fit. Make another table with `bytes_needed`."""

    def __init__(self, bytes_needed: int) -> None:
        super().__init__(f"the keys need {size_text(bytes_needed)}")
        self.bytes_needed = bytes_needed


def first_table_bytes(view: TableView) -> int:
    """Returns the memory for a first table of a whole log. Pure.

    A cleaned record is likely the only one of its key; how many keys others have is not known.
    """
    counts = [_counts(each.row, view.tail.clean_offset) for each in view.tail.segments]
    clean, others = sum(each for each, _ in counts), sum(each for _, each in counts)
    return table_bytes(max(clean + min(others, GUESSED_KEYS_MAX), KEYS_MIN), view.strategy)


def _counts(row: SegmentRow, clean_offset: Offset) -> tuple[int, int]:
    """Returns how many records of a segment are below the clean offset, and how many are not, about."""
    count, span = max(row.record_count, 0), max(row.end_offset - row.base_offset, 1)
    clean = count * min(max(clean_offset - row.base_offset, 0), span) // span
    return clean, count - clean


def table_bytes(keys: int, strategy: CompactionStrategy) -> int:
    """Returns the memory that a table for so many keys takes. Pure."""
    slot_bytes = MAP_ENTRY_BYTES + VERSION_BYTES * strategy.has_versions
    map_bytes = (ceil(keys / LOAD_FACTOR) + 1 + SPILL_SLOTS) * slot_bytes
    return map_bytes + min(NOTES_BYTES_MAX, map_bytes // (NOTES_SHARE - 1) + 1)


def notes_bytes(size: int) -> int:
    """Returns how much of a table's memory is for notes. Pure."""
    return min(NOTES_BYTES_MAX, size // NOTES_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillPlace:
    """Where keys go that do not fit into memory."""

    fs: FileSystem
    path: str
    """A name that no file has; it is used for a moment."""


class KeyTable:
    """The table of one log. For one thread at a time."""

    __slots__ = (
        "_bytes_max", "_fresh", "_hash_key", "_map", "_notes", "_place", "_settings", "_spilled",
        "_trusts_sidecars", "basis", "end_offset", "swaps",
    )  # fmt: skip

    def __init__(
        self,
        view: TableView,
        settings: CleanerSettings,
        *,
        bytes_max: int,
        trusts_sidecars: bool = True,
        place: SpillPlace | None = None,
    ) -> None:
        """Make an empty table; `extend` fills it.

        Args:
            bytes_max: the memory that it may take.
            trusts_sidecars: False reads all segments instead.
            place: where keys go that do not fit; None: `extend` raises TableTooSmall.
        """
        # Constant after construction.
        self._settings = settings
        self._trusts_sidecars = trusts_sidecars
        self._bytes_max = bytes_max
        self._place = place
        self._hash_key = view.hash_key
        head_bytes = bytes_max if place is None else bytes_max - bytes_max // PLACES_SHARE
        self._map = OffsetMap(
            head_bytes - notes_bytes(bytes_max),
            view.hash_key,
            LOAD_FACTOR,
            has_versions=view.strategy.has_versions,
        )
        self._notes = DeadNotes(view.tail, bytes_max=notes_bytes(bytes_max))
        self.basis = view.basis
        self.swaps = view.tail.swaps
        """The swaps of the log when the table was made."""
        # State.
        self.end_offset = Offset(0)
        """Records below it are in the table."""
        self._spilled: SpilledKeys | None = None
        """The keys that were in memory before."""
        self._fresh = set[bytes]()
        """The hashes of keys that came since, whose earlier records may be on the disk. The notes lack
        these."""

    def close(self) -> None:
        """Give back its space on the disk; it must not be used again."""
        if self._spilled is not None:
            self._spilled.close()

    @property
    def spilled_bytes(self) -> int:
        """The bytes of keys on the disk."""
        return 0 if self._spilled is None else self._spilled.size_bytes

    def reaches(self, least: Offset, log: PartitionLog) -> bool:
        """Returns whether the table holds, and has the log's records below `least`. On the loop."""
        basis = self.basis
        return (
            self.end_offset >= least
            and log.rewrites == basis.rewrites
            and log.config.strategy == basis.strategy
            and (not basis.strategy.has_versions or log.log_start_offset == basis.log_start_offset)
        )

    def offset_of(self, key: bytes, *, cached_only: bool = False) -> Offset | None:
        """Returns the offset of a key's last record; None if it has none. The record may be gone.

        Raises, if keys were spilled:
            SpillDamaged: what is on the disk is not what was written. Make the table again.
            NotCached: with `cached_only`, that would have to wait for the disk.
            DiskError: reading failed.
        """
        if self._spilled is None:
            offset = self._map.get(key)
            return None if offset is None else Offset(offset)
        rank = self._rank_of(siphash128(self._hash_key, key), cached_only=cached_only)
        return None if rank is None else Offset(rank.offset)

    def _rank_of(self, hashed: bytes, *, cached_only: bool = False) -> Rank | None:
        """Returns the rank of a key's last record. Raises as `offset_of`."""
        held = self._map.rank_of(hashed)
        if self._spilled is None:
            return held
        earlier = self._spilled.rank_of(hashed, cached_only=cached_only)
        if held is None or earlier is None:
            return held or earlier
        return held if wins(held, earlier) else earlier

    def is_current(self, log: PartitionLog) -> bool:
        """Returns whether no pass may have dropped a tombstone that still outranks others here."""
        return not self.basis.strategy.has_versions or log.swaps == self.swaps

    def live_until(self, offset: Offset) -> Offset:
        """Returns up to where everything from an offset on is the last record of its key, and not in a
        transaction: at most the table's end. It may be the offset itself."""
        return self._notes.live_until(offset, self.end_offset)

    def notes_lag(self, log: PartitionLog) -> bool:
        """Returns whether passes have replaced segments since it was noted what is not a last record.
        Then renewed notes let more of the log be sent as it is stored."""
        if self._spilled is not None:
            return False  # Each comparison would have to read the disk.
        return not self.basis.strategy.has_versions and self._notes.swaps != log.swaps

    def renew_notes(self, view: TableView, meter: PassMeter) -> Iterator[None]:
        """Note again what is not a last record, in steps for a worker thread. See `DeadNotes.renew`.

        Args:
            view: of the whole log, of the same basis.
        """
        assert view.basis == self.basis
        return self._notes.renew(
            view.tail,
            self.end_offset,
            partial(self._compared, view, meter, end_offset=self.end_offset),
        )

    def _compared(
        self, view: TableView, meter: PassMeter, segment: CleanableSegment, *, end_offset: Offset
    ) -> Iterator[None]:
        """Note what a segment has below an end that is not a last record. A step is a block of keys."""
        source = self._keys_of(view, meter, segment, from_offset=segment.row.base_offset)
        for block in source.blocks():
            self._note_special(block, source)
            self._notes.latest.note_outranked(
                block, self._map, base_offset=source.base_offset, end_offset=end_offset
            )
            yield

    def _note_special(self, block: bytes | memoryview, source: SegmentKeys) -> None:
        self._notes.latest.note_special(
            block, base_offset=source.base_offset, segment_end_offset=source.end_offset
        )

    def latest_filter(
        self,
        start_offset: Offset,
        *,
        decompressed_bytes_max: int,
        codec_levels: tuple[int | None, ...],
        with_tombstones: bool,
    ) -> LatestFilter | SpilledFilter:
        """Returns a filter that copies the last records from an offset on. Do not extend the table
        while it is used."""
        if self._spilled is not None:
            return SpilledFilter(
                self._rank_of,
                hash_key=self._hash_key,
                strategy=self.basis.strategy,
                start_offset=start_offset,
                decompressed_bytes_max=decompressed_bytes_max,
                codec_levels=codec_levels,
                with_tombstones=with_tombstones,
            )
        return LatestFilter(
            self._map,
            start_offset=start_offset,
            decompressed_bytes_max=decompressed_bytes_max,
            codec_levels=codec_levels,
            with_tombstones=with_tombstones,
        )

    def extend(self, view: TableView, meter: PassMeter) -> None:
        """Put in what the log has from `end_offset` to its last stable offset. For a worker thread.

        After an error the table must not be used again.

        Raises:
            TableTooSmall: the keys do not fit.
            SpillDamaged: what is on the disk is not what was written.
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: as `scan_segment`.
            SegmentRemoved: a pass or retention has removed a segment meanwhile; retry with a new view.
            DamagedSidecar: a sidecar is damaged; the next pass removes it. Retry without sidecars.
        """
        assert view.basis == self.basis
        segments = [
            each
            for each in view.tail.segments
            if each.row.size and each.row.end_offset > self.end_offset
        ]
        sources = [
            self._keys_of(view, meter, each, from_offset=self.end_offset) for each in segments
        ]
        transactions = self._outcomes(sources, view)
        start_offset = max(self.end_offset, self.basis.log_start_offset)
        for source in sources:
            if source.base_offset >= view.tail.last_stable_offset:
                break
            for block in source.blocks():
                self._note_special(block, source)
                self._put(
                    block,
                    source,
                    transactions,
                    meter,
                    start_offset=start_offset,
                    end_offset=view.tail.last_stable_offset,
                )
        self._note_outranked_on_disk(meter)
        for segment in segments:
            if segment.row.base_offset >= self.end_offset:
                self._notes.note_segment(segment)
        self.end_offset = view.tail.last_stable_offset

    def _put(
        self,
        block: bytes | memoryview,
        source: SegmentKeys,
        transactions: Transactions | None,
        meter: PassMeter,
        *,
        start_offset: int,
        end_offset: int,
    ) -> None:
        """Put a block of keys in, and move what is there to the disk whenever that is full."""
        put = partial(
            map_keys,
            block,
            self._map,
            base_offset=source.base_offset,
            end_offset=end_offset,
            transactions=transactions,
            dead=self._notes.latest,
        )
        step = put(start_offset=start_offset)
        while step.is_full:
            self._spill(meter)
            at = offset_at(block, step.entries, base_offset=source.base_offset)
            step = put(start_offset=at)
        # More than these are not compared one by one, so they are not remembered.
        if self._spilled is not None and len(self._fresh) <= self._compared_max:
            self._fresh.update(
                entry_hashes(
                    block,
                    base_offset=source.base_offset,
                    start_offset=start_offset,
                    end_offset=end_offset,
                )
            )

    def _spill(self, meter: PassMeter) -> None:
        """Move the keys to the disk. Raises TableTooSmall if they may not go there."""
        if self._place is None:
            raise TableTooSmall(2 * self._bytes_max)
        spilled = merged(
            self._place.fs,
            self._place.path,
            self._spilled,
            self._map,
            self._notes.latest,
            meter,
            has_versions=self.basis.strategy.has_versions,
        )
        self.close()
        self._spilled = spilled
        self._map.clear()
        self._fresh.clear()
        if spilled.memory_bytes > self._bytes_max // PLACES_SHARE:
            raise TableTooSmall(2 * self._bytes_max)

    @property
    def _compared_max(self) -> int:
        """How many new keys are compared with the disk one by one, rather than by a merge."""
        return max(COMPARED_MIN, self._spilled.count // COMPARED_SHARE if self._spilled else 0)

    def _note_outranked_on_disk(self, meter: PassMeter) -> None:
        """Note which records on the disk the new ones outrank, or the reverse."""
        if self._spilled is not None and len(self._fresh) > self._compared_max:
            self._spill(meter)  # It reads the disk in order, and notes the same.
        if self._spilled is not None:
            for hashed in self._fresh:
                held = self._map.rank_of(hashed)
                earlier = self._spilled.rank_of(hashed, cached_only=False)
                if held is not None and earlier is not None and held != earlier:
                    loser = earlier if wins(held, earlier) else held
                    self._notes.latest.note(loser.offset)
        self._fresh.clear()

    def _keys_of(
        self, view: TableView, meter: PassMeter, segment: CleanableSegment, *, from_offset: Offset
    ) -> SegmentKeys:
        return SegmentKeys(
            segment,
            view,
            self._settings,
            meter,
            from_offset=from_offset,
            trusts_sidecar=self._trusts_sidecars,
        )

    def _outcomes(self, sources: Sequence[SegmentKeys], view: TableView) -> Transactions | None:
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

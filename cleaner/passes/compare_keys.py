"""Compare the keys of superseded records before any of them goes (`compaction.compare.keys`).

Marks come from 128-bit hashes of keys. Here each marked record of a window is read, and so are the
records that may outrank it: for each key there must be one with the same bytes. So a pass removes no
record because of another key, also if two keys have one hash, or if a key sidecar is wrong.

    for the marked segments of a window:  remember the key of each marked record
    whenever the memory is full, and at the end:  read the dirty section, and find a later record of each

Where records have versions, the winners are in the window, and marking has set a bit for each.

Cost: the segments with marks are read once more, and the dirty section once for each filling of the
memory (docs/design/exact-keys.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence

from cleaner.kernel.key_proof import KeyProof
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.dirty_section import DirtySection
from cleaner.passes.index import IndexedSegment
from cleaner.passes.mark import Marked
from cleaner.passes.scan import scan_segment
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.rules.step import KeysDiffer, ReadStep
from cleaner.rules.text import count_text

Window = Sequence[tuple[IndexedSegment, Marked]]
"""Neighbouring segments, each with the marks of its superseded records."""

Winners = Sequence[tuple[IndexedSegment, bytearray | None]]
"""Segments, each with a bit for each winner if these are known."""

Note = Callable[[IndexedSegment], None]
"""Called with each segment before it is read, as its damage may end the pass."""


class KeyComparison:
    """Compares the keys of one pass. Used by the pass's thread only."""

    __slots__ = ("_meter", "_proof", "_section", "_settings", "keys")

    def __init__(
        self,
        section: DirtySection,
        settings: CleanerSettings,
        *,
        meter: PassMeter,
    ) -> None:
        """The remembered keys take as much memory as the settings give a map."""
        # Constant after construction.
        self._section = section
        self._settings = settings
        self._meter = meter
        # Its secret is not that of the marks: two keys with one hash there have two here.
        self._proof = KeyProof(
            secrets.token_bytes(16),
            memory_bytes=settings.map_bytes,
            decompressed_bytes_max=settings.decompressed_bytes_max,
            aborted=() if section.transactions is None else section.transactions.aborted,
        )
        # State.
        self.keys = 0
        """How many keys were compared; a key of several fillings of the memory counts in each."""

    def compare(self, window: Window, later: Sequence[IndexedSegment], note: Note) -> None:
        """Prove the marks of a window.

        Args:
            later: the segments after it, up to the end of the dirty section.

        Raises:
            VerificationFailed: a marked record has no record of its key that outranks it; the key
                sidecars that may be wrong are removed.
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
        """
        marked = [(segment, its) for segment, its in window if its.superseded]
        if not marked:
            return
        winners = self._winners(window, later)
        to_find = sum(segment.row.size for segment, _ in winners)
        to_mark = sum(segment.row.size for segment, _ in marked)
        self._meter.progress.enter(Phase.COMPARE)
        for segment, its in marked:
            self._meter.progress.expect_left(Phase.COMPARE, to_mark + to_find)
            note(segment)
            self._proof.begin_marked(its.marks)
            for _ in self._scan(segment, self._proof.feed_marked):
                if self._proof.is_full:
                    self._find(winners, note)
                    self._meter.progress.expect_left(Phase.COMPARE, to_mark + to_find)
                    note(segment)
            _check_entries(segment, self._proof.marked_records)
            to_mark -= segment.row.size
        self._find(winners, note)

    def _winners(self, window: Window, later: Sequence[IndexedSegment]) -> Winners:
        """Returns the segments that may hold the winners of a window."""
        if self._section.strategy.has_versions:
            return [(segment, its.winners) for segment, its in window]
        start = self._section.map_offset
        segments = [*(segment for segment, _ in window), *later]
        return [(segment, None) for segment in segments if segment.row.end_offset > start]

    def _find(self, winners: Winners, note: Note) -> None:
        """Look for the winners of all remembered keys, and forget these."""
        for segment, bits in winners:
            note(segment)
            self._proof.begin_winners(
                start_offset=self._section.log_start_offset if bits else self._section.map_offset,
                end_offset=self._section.end_offset,
                winners=bits,
            )
            for _ in self._scan(segment, self._proof.feed_winners):
                pass
        self.keys += len(self._proof)
        found = self._proof.unproven
        if found.keys:
            for segment, _ in winners:
                segment.segment.drop_key_sidecar()
            raise VerificationFailed(
                f"{count_text(found.keys, 'key')} would lose records although no later record has"
                f" that key, the first at offset {found.first_offset}: two keys have one hash, or a key"
                " sidecar was wrong; the next pass rebuilds the key sidecars"
            )
        self._proof.clear()

    def _scan(self, segment: IndexedSegment, feed: Callable[..., ReadStep]) -> Iterator[ReadStep]:
        """Read a segment chunk by chunk. Raises as `scan_segment`."""

        def step(chunk: bytes, position: int) -> ReadStep:
            try:
                return feed(chunk, position=position)
            except KeysDiffer:
                raise _wrong_sidecar(segment) from None

        return scan_segment(
            segment, step, chunk_bytes=self._settings.chunk_bytes, meter=self._meter
        )


def _check_entries(segment: IndexedSegment, records: int) -> None:
    """Check that the marks were for as many records as the segment has."""
    if records != segment.totals.entries:
        raise _wrong_sidecar(segment)


def _wrong_sidecar(segment: IndexedSegment) -> VerificationFailed:
    """Remove a key sidecar that does not have one entry for each record with a key."""
    segment.segment.drop_key_sidecar()
    return VerificationFailed(
        f"the key sidecar of the segment at offset {segment.row.base_offset} does not have one entry for"
        " each record with a key; the next pass rebuilds it"
    )

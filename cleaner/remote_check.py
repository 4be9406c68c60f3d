"""Whether what others left of a log is what must be left, told by keys and without their word.

The broker marks what is superseded itself, by key sidecars, for one part of the hash space that its
memory holds, drawn by chance: for all keys where they fit. Then, for each group, the records that the
sources keep and those that the outputs hold must be the same, by key and offset (`kept.pxi`); the
outputs' keys are read from the outputs. So a mark that was wrong, or a group that was forgotten, cannot
take the last value of a key of that part. Two sums a group are kept, and the marks of one segment.

Cost: each sidecar is read once more, those of the dirty section twice; each output is read and inflated
once, which makes its sidecar. Sidecars that sources lack are made first, as in a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cleaner.cleaning_plan import CleaningPlan
from cleaner.group import has_passed
from cleaner.index import IndexedSegment, indexed_blocks
from cleaner.kernel import KeyIndexer, OffsetMap, mark_keys, sum_kept
from cleaner.mark import DirtySection, KeyParts, dirty_section, map_beside_marks, marks_bytes
from cleaner.meter import PassMeter
from cleaner.settings import CleanerSettings
from cleaner.step import KeptKeys
from cleaner.text import count_text
from cleaner.verify_pass import offsets_text
from storage.cleaned_segment import CleanedSegment
from storage.key_sidecar import KeyBlock, key_block
from storage.key_sidecar_writer import KeySidecarWriter
from storage.manifest import SegmentRow
from storage.paths import KEYS


class KeysLost(Exception):
    """What is left is not what must be left; the message is one sentence."""


class KeyCheck:
    """Checks the groups of one result; used by one thread."""

    __slots__ = ("_map", "_meter", "_plan", "_section", "_settings", "keys", "parts")

    def __init__(
        self,
        plan: CleaningPlan,
        segments: Sequence[IndexedSegment],
        settings: CleanerSettings,
        *,
        meter: PassMeter,
        choose: Callable[[int], int],
    ) -> None:
        """Fill the map.

        Args:
            segments: all that the plan covers.
            choose: a number below the one given, which nobody can foretell.

        Raises:
            DamagedSidecar, CleaningAborted, StorageError: see `IndexedSegment.blocks`.
        """
        # Constant after construction.
        self._plan = plan
        self._settings = settings
        self._meter = meter
        self._section: DirtySection = dirty_section(
            segments, start_offset=plan.start_offset, end_offset=plan.end_offset
        )
        spans = [slice(number, number + 1) for number in range(len(segments))]
        parts = KeyParts(
            self._section, map_beside_marks(plan.view.hash_key, segments, spans, settings)
        )
        self._map: OffsetMap = parts.any(choose)
        self.parts = parts.count
        """Into how many parts the hash space was divided, of which one is checked."""
        self.keys = self._map.size
        """The dirty section's keys in it."""

    @property
    def end_offset(self) -> int:
        """Where the pass must end."""
        return self._section.end_offset

    def check(self, sources: Sequence[IndexedSegment], outputs: Sequence[CleanedSegment]) -> None:
        """Compare a group's sources with its outputs, whose key sidecars are made beside them.

        Raises:
            KeysLost: they differ.
            CorruptBatch, DecompressionTooLarge, KeysDiffer: an output or a sidecar is damaged.
            DamagedSidecar, CleaningAborted, StorageError: see `IndexedSegment.blocks`.
        """
        now_ms = self._plan.now_ms
        is_due = any(has_passed(each.totals.least_delete_horizon_ms, now_ms) for each in sources)
        kept = KeptKeys()
        for source in sources:
            kept = kept.plus(self._kept(source, with_tombstones=not is_due)[0])
        found = KeptKeys()
        for output in outputs:
            found = found.plus(self._found(output, with_tombstones=not is_due))
        if kept != found:
            raise KeysLost(
                f"{offsets_text([each.row for each in sources])}:"
                f" {count_text(kept.count, 'keyed record')} of the part of the keys that was looked at"
                f" must be left, {found.count} are, or others"
            )

    def check_untouched(self, segment: IndexedSegment) -> None:
        """Whether nothing is superseded in a segment that is in no group. Raises as `check`."""
        _, superseded = self._kept(segment, with_tombstones=False)
        # The last record of a pass stays, whatever it is.
        holds_tail = segment.row.end_offset >= self.end_offset
        if superseded > holds_tail:
            raise KeysLost(
                f"{offsets_text([segment.row])}: {count_text(superseded, 'superseded record')}"
                " would stay in a segment that is left as it is"
            )

    def _kept(self, source: IndexedSegment, *, with_tombstones: bool) -> tuple[KeptKeys, int]:
        """What must be left of a source, and how many of its records are superseded."""
        marks = bytearray(marks_bytes(source.totals.entries))
        kept, superseded = KeptKeys(), 0
        for block in source.blocks():
            step = mark_keys(
                block.data,
                self._map,
                marks,
                base_offset=source.row.base_offset,
                first_entry=block.first_entry,
                start_offset=self._section.start_offset,
                end_offset=self.end_offset,
                transactions=self._section.transactions,
            )
            superseded += step.superseded
            kept = kept.plus(self._sum(block, source.row, marks, with_tombstones=with_tombstones))
        return kept, superseded

    def _found(self, output: CleanedSegment, *, with_tombstones: bool) -> KeptKeys:
        """What an output holds; its sidecar is written meanwhile, if sidecars are kept."""
        indexer = KeyIndexer(
            self._plan.view.hash_key,
            base_offset=output.row.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
        )
        writer = self._writer(output) if self._settings.keeps_key_sidecars else None
        found = KeptKeys()
        try:
            for block in self._blocks(output, indexer):
                found = found.plus(
                    self._sum(block, output.row, None, with_tombstones=with_tombstones)
                )
                if writer is not None:
                    writer.append(block.data)
                    self._meter.wrote(len(block.data))
            if writer is not None:
                writer.finish(output.row.size, indexer.totals)
        except BaseException:
            if writer is not None:
                writer.discard()
            raise
        return found

    def _writer(self, output: CleanedSegment) -> KeySidecarWriter:
        return KeySidecarWriter(
            output.fs,
            output.staged_path(KEYS),
            base_offset=output.row.base_offset,
            file_version=output.row.file_version,
            hash_key=self._plan.view.hash_key,
        )

    def _blocks(self, output: CleanedSegment, indexer: KeyIndexer) -> Iterator[KeyBlock]:
        chunk_bytes = self._settings.chunk_bytes
        position = first_entry = 0
        for data in indexed_blocks(output, indexer, chunk_bytes=chunk_bytes, meter=self._meter):
            block = key_block(data, position=position, first_entry=first_entry)
            yield block
            position += block.data_bytes
            first_entry += block.entry_count

    def _sum(
        self, block: KeyBlock, row: SegmentRow, marks: bytearray | None, *, with_tombstones: bool
    ) -> KeptKeys:
        return sum_kept(
            block.data,
            self._map,
            marks,
            base_offset=row.base_offset,
            first_entry=block.first_entry,
            end_offset=self.end_offset,
            with_tombstones=with_tombstones,
            transactions=None if marks is None else self._section.transactions,
        )

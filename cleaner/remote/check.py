"""Checks by keys that an executor's outputs hold what must remain, without trusting the executor.

The broker itself marks superseded records, by key sidecars, for one randomly chosen part of the hash
space that fits in its memory, or for all keys if they fit. Then, for each group, the records that must
remain of the sources and those that the outputs hold must be the same, by key and offset (`kept.pxi`);
the keys of the outputs are read from the outputs themselves. So a wrong mark or a forgotten group cannot
remove the last value of a key in that part. Memory: two sums per group, and the marks of one segment.

Cost: each sidecar is read once more, those of the dirty section twice; each output is read and inflated
once, which also makes its sidecar. Missing sidecars of sources are made first, as in a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cleaner.kernel.kernel import KeyIndexer, OffsetMap, mark_keys, sum_kept
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.dirty_section import DirtySection, dirty_section
from cleaner.passes.index import IndexedSegment, indexed_blocks
from cleaner.passes.key_parts import KeyParts
from cleaner.passes.memory import map_beside_marks, marks_bytes
from cleaner.passes.verify_pass import offsets_text
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.group import has_passed
from cleaner.rules.step import KeySum
from cleaner.rules.text import count_text
from storage.files.paths import KEYS
from storage.formats.key_sidecar import KeyBlock, key_block
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegment
from storage.segment.key_sidecar_writer import KeySidecarWriter


class KeysLost(Exception):
    """The outputs do not hold what must remain; the message is one sentence."""


class KeyCheck:
    """Checks the groups of one result. Used by one thread."""

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
            segments: all segments that the plan covers.
            choose: returns an unpredictable number below its argument.

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
        self._map: OffsetMap = parts.fill_any(choose)
        self.parts = parts.count
        """Number of parts of the hash space; one of them is checked."""
        self.keys = self._map.size
        """Number of the dirty section's keys in the checked part."""

    @property
    def end_offset(self) -> int:
        """Where the pass must end."""
        return self._section.end_offset

    def check(self, sources: Sequence[IndexedSegment], outputs: Sequence[CleanedSegment]) -> None:
        """Compare a group's sources with its outputs, and write key sidecars for the outputs.

        Raises:
            KeysLost: they differ.
            CorruptBatch, DecompressionTooLarge, KeysDiffer: an output or a sidecar is damaged.
            DamagedSidecar, CleaningAborted, StorageError: see `IndexedSegment.blocks`.
        """
        now_ms = self._plan.now_ms
        is_due = any(has_passed(each.totals.least_delete_horizon_ms, now_ms) for each in sources)
        kept = KeySum()
        for source in sources:
            kept = kept.plus(self._sum_source(source, with_tombstones=not is_due)[0])
        found = KeySum()
        for output in outputs:
            found = found.plus(self._sum_output(output, with_tombstones=not is_due))
        if kept != found:
            raise KeysLost(
                f"{offsets_text([each.row for each in sources])}:"
                f" {count_text(kept.count, 'keyed record')} must remain in the checked part of the keys,"
                f" the output holds {found.count}, or different ones"
            )

    def check_untouched(self, segment: IndexedSegment) -> None:
        """Check that nothing is superseded in a segment that is in no group. Raises as `check`."""
        _, superseded = self._sum_source(segment, with_tombstones=False)
        # The last record below the pass's end stays even if it is superseded.
        holds_tail = segment.row.end_offset >= self.end_offset
        if superseded > holds_tail:
            raise KeysLost(
                f"{offsets_text([segment.row])}: {count_text(superseded, 'superseded record')}"
                " would stay in a segment that is left as it is"
            )

    def _sum_source(self, source: IndexedSegment, *, with_tombstones: bool) -> tuple[KeySum, int]:
        """Returns the sum of what must remain of a source, and the number of its superseded records."""
        marks = bytearray(marks_bytes(source.totals.entries))
        kept, superseded = KeySum(), 0
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
            kept = kept.plus(
                self._sum_block(block, source.row, marks, with_tombstones=with_tombstones)
            )
        return kept, superseded

    def _sum_output(self, output: CleanedSegment, *, with_tombstones: bool) -> KeySum:
        """Returns the sum of what an output holds; also writes its sidecar, if sidecars are kept."""
        indexer = KeyIndexer(
            self._plan.view.hash_key,
            base_offset=output.row.base_offset,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
        )
        writer = self._writer(output) if self._settings.keeps_key_sidecars else None
        found = KeySum()
        try:
            for block in self._blocks(output, indexer):
                found = found.plus(
                    self._sum_block(block, output.row, None, with_tombstones=with_tombstones)
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

    def _sum_block(
        self, block: KeyBlock, row: SegmentRow, marks: bytearray | None, *, with_tombstones: bool
    ) -> KeySum:
        return sum_kept(
            block.data,
            self._map,
            marks,
            base_offset=row.base_offset,
            first_entry=block.first_entry,
            end_offset=self.end_offset,
            with_tombstones=with_tombstones,
            transactions=None if marks is None else self._section.transactions,
            hold_offset=self._plan.hold.offset,
        )

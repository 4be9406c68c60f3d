"""Recopy a group of segments into cleaned segments: usually one, more if the output grows too large.

The filter decides whether a batch still fits in the output segment before it changes any state
(invariant 15 of tests/cleaner/invariants), so a batch that starts a new segment is judged only once.
Offsets do not move: a cleaned segment covers all offsets up to the base of the next one, and the last
one ends where the group ended, even if its last records were dropped.

Source: Apache Kafka, Cleaner.java `cleanSegments`, `cleanInto`; KAFKA-20036 (several outputs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from cleaner.kernel.kernel import BatchFilter
from cleaner.pacing.meter import PassMeter
from cleaner.passes.mark import Marked
from cleaner.passes.scan import ReadableSegment, read_exactly
from cleaner.rules.report import Counts, counts_between
from cleaner.rules.step import FilterStep, SegmentSummary
from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.formats.key_sidecar import KeyBlock
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter


class RecopiedSegment(ReadableSegment, Protocol):
    """A readable segment with the blocks of its key sidecar."""

    @property
    def keys_checked(self) -> bool: ...
    def blocks(self) -> Iterator[KeyBlock]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A written segment, and the filter's summary of it."""

    writer: CleanedSegmentWriter
    summary: SegmentSummary
    totals: KeyTotals
    key_sum: int | None
    """The sum of its keys, as `BatchFilter.key_sum`; None unless its sidecar says that they were
    checked."""


class Recopy:
    """Writes the cleaned segments of one group. `run` or `discard` ends it."""

    __slots__ = (
        "_can_check_keys", "_checks_keys", "_filter", "_full", "_has_sidecars", "_is_verified",
        "_meter", "_open", "_writers", "by_source", "is_verbatim", "key_sums", "keys_to_check_bytes",
    )  # fmt: skip

    def __init__(
        self,
        batch_filter: BatchFilter,
        new_segment: Callable[[Offset], CleanedSegmentWriter],
        *,
        has_sidecars: bool,
        meter: PassMeter,
        can_check_keys: bool = False,
        is_verified: bool = False,
    ) -> None:
        """
        Args:
            new_segment: creates the staged file of a cleaned segment, given its base offset.
            has_sidecars: whether the cleaned segments get key sidecars.
            can_check_keys: whether the pass judges all of the group, so that one that verifies compares
                each key with its record's. The sidecars of outputs with compressed batches then say so.
            is_verified: whether the pass verifies.
        """
        # Constant after construction.
        self._filter = batch_filter
        self._open = new_segment
        self._has_sidecars = has_sidecars
        self._meter = meter
        self._can_check_keys = can_check_keys
        self._is_verified = is_verified
        # State: `_full` has all outputs except the last, with their summaries.
        self._writers: list[CleanedSegmentWriter] = []
        self._full: list[Output] = []
        self._checks_keys: bool | None = None
        """Whether a pass that verifies checks the sidecar that is being written; None before its first
        block."""
        self.by_source: list[Counts] = []
        """The verdicts on each source's records."""
        self.key_sums: dict[Offset, int] = {}
        """The sum of the keys that the sidecar of each output must have, by base offset, if the sidecar
        says that they were checked."""
        self.keys_to_check_bytes = 0
        """The size of the blocks of these sidecars, or, in a pass that does not verify, of those that
        would say so."""
        self.is_verbatim = True
        """Whether the bytes written so far are exactly the bytes read."""

    def run(
        self, group: Sequence[tuple[RecopiedSegment, Marked]], *, now_ms: int
    ) -> tuple[CleanedSegment, ...]:
        """Recopy `group`. Returns the outputs, which are synced, but not yet listed in the manifest.

        If this raises, the caller must call `discard`.

        Raises:
            KeysDiffer: a record differs from its entry in the sidecar.
            CorruptBatch, DecompressionTooLarge, CleaningAborted, StorageError: see `scan_segment`.
            DamagedSidecar: see `IndexedSegment.blocks`.
        """
        self._filter.start_group()
        self._start_segment(group[0][0].row.base_offset)
        for segment, its in group:
            before = self._filter.counts
            self._filter.start_source(
                segment.row.base_offset,
                its.marks,
                its.winners,
                keys_checked=segment.keys_checked,
            )
            for block in segment.blocks():
                self._recopy_block(segment, block)
            self.by_source.append(counts_between(before, self._filter.counts))
        self._append_keys(self._filter.take_keys())
        outputs = [*self._full, self._whole_output()]
        rows = cleaned_rows(
            [output.summary for output in outputs],
            [segment.row for segment, _ in group],
            now_ms=now_ms,
        )
        return tuple(self._finish(output, row) for output, row in zip(outputs, rows, strict=True))

    def discard(self) -> None:
        """Remove all written files; only for segments that no manifest lists."""
        for writer in self._writers:
            # If this fails, the next recovery removes the file.
            with suppress(StorageError):
                writer.discard()

    def _start_segment(self, base_offset: Offset) -> None:
        self._writers.append(self._open(base_offset))
        self._checks_keys = None
        self._filter.start_segment(base_offset)

    def _whole_output(self) -> Output:
        return Output(
            writer=self._writers[-1],
            summary=self._filter.segment,
            totals=self._filter.key_totals,
            key_sum=self._filter.key_sum if self._checks_keys else None,
        )

    def _recopy_block(self, segment: RecopiedSegment, block: KeyBlock) -> None:
        """Feed the filter with a sidecar block and exactly the bytes that it describes."""
        data = memoryview(read_exactly(segment, block.position, block.data_bytes))
        self._meter.read(len(data))
        consumed = 0
        while consumed < len(data):
            position = block.position + consumed
            step = self._filter.feed(data[consumed:], block.data, position=position)
            self._write(step)
            consumed += step.consumed_bytes

    def _write(self, step: FilterStep) -> None:
        self.is_verbatim &= step.is_verbatim
        if len(step.output):
            self._writers[-1].append(step.output, step.index_entries)
            self._meter.wrote(len(step.output))
        self._append_keys(step.key_block)
        if step.segment_full:
            self._full.append(self._whole_output())
            self._start_segment(step.next_base_offset)

    def _append_keys(self, block: bytes) -> None:
        if block and self._has_sidecars:
            # The header is written with the first block, so a segment whose first compressed batch comes
            # later does without the flag.
            if self._checks_keys is None:
                self._checks_keys = self._can_check_keys and self._filter.has_compressed
            keys_checked = self._checks_keys and self._is_verified
            self._writers[-1].append_keys(block, keys_checked=keys_checked)
            self._meter.wrote(len(block))
            self.keys_to_check_bytes += len(block) * self._checks_keys

    def _finish(self, output: Output, row: SegmentRow) -> CleanedSegment:
        if output.key_sum is not None:
            self.key_sums[output.summary.base_offset] = output.key_sum
        return output.writer.finish(row, output.totals if self._has_sidecars else None)


def cleaned_rows(
    summaries: Sequence[SegmentSummary], sources: Sequence[SegmentRow], *, now_ms: int
) -> list[SegmentRow]:
    """Returns the manifest rows of the outputs, in offset order. Pure.

    The append times are those of the sources: minimum and maximum lag count from when records arrived,
    not from when they were copied. The writer fills in file version and size.
    """
    ends = [summary.base_offset for summary in summaries[1:]] + [sources[-1].end_offset]
    first_appends = [row.first_append_ms for row in sources if row.first_append_ms != UNKNOWN]
    return [
        SegmentRow(
            base_offset=summary.base_offset,
            file_version=UNKNOWN,
            end_offset=end,
            max_timestamp=summary.max_timestamp,
            offset_of_max_timestamp=summary.max_timestamp_offset,
            created_ms=now_ms,
            first_append_ms=min(first_appends, default=UNKNOWN),
            last_append_ms=max(row.last_append_ms for row in sources),
            record_count=summary.records,
            control_count=summary.controls,
            tombstone_count=summary.tombstones,
            least_delete_horizon_ms=summary.delete_horizon_ms_min,
            tombstone_bytes=summary.tombstone_bytes,
            tombstones_due_ms=summary.tombstone_horizon_ms_max,
        )
        for summary, end in zip(summaries, ends, strict=True)
    ]

"""Makes the key sidecars of sealed segments before a pass needs them, and counts the keys in them.

A pass reads each segment without a sidecar. Here that is done earlier, when no pass has work, soon after
the segment was sealed and so, as a rule, while its bytes are in the page cache. The pass then finds the
sidecar. What the sidecars say of a log's keys tells how much a pass would free
(`cleaner/rules/reclaimable.py`).

Nothing else of a log changes. A task over segments stops within a chunk, and keeps what it has counted
to the end of the last whole segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cleaner.kernel.key_sketch import add_keys
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.progress import Phase
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.index import SegmentIndex, run_with_sidecars
from cleaner.rules.reclaimable import (
    Due,
    KeyCount,
    Reclaimable,
    SectionCount,
    clean_rows,
    dirty_rows,
    estimate,
    packed,
    unpacked,
)
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.log.cleaning_view import CleanableSegment, CleaningView
from storage.threads import any_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPlan:
    """What to count of a log, decided at one moment on the event loop."""

    view: CleaningView
    count: KeyCount
    """What was counted, and still holds."""
    due: Due
    end_offset: Offset
    """No segment is counted that reaches above it."""


@any_thread
class AheadCounting:
    """Counts the sections of a log: the dirty one first. For one thread at a time."""

    __slots__ = ("_clean", "_dirty", "_plan")

    def __init__(self, plan: CountPlan) -> None:
        first_dirty = plan.count.first_dirty_offset
        self._plan = plan
        self._clean = SectionCounting(plan.count.clean, Offset(0), first_dirty)
        self._dirty = SectionCounting(plan.count.dirty, first_dirty, OFFSET_MAX)

    def run(self, settings: CleanerSettings, meter: PassMeter) -> None:
        """Count what is due. Raises as `SectionCounting.count`; what was counted until then stays."""
        plan, first_dirty = self._plan, self._plan.count.first_dirty_offset
        rows, segments = plan.view.sealed_rows, plan.view.segments
        if plan.due.dirty:
            dirty = segments[len(rows) - len(dirty_rows(rows, first_dirty)) :]
            dirty = tuple(each for each in dirty if each.row.end_offset <= plan.end_offset)
            self._dirty.count(plan.view, dirty, settings, meter=meter)
        if plan.due.clean:
            clean = segments[: len(clean_rows(rows, first_dirty))]
            self._clean.count(plan.view, clean, settings, meter=meter)

    def result(self) -> tuple[KeyCount, Reclaimable | None]:
        """Returns what was counted so far, and the estimate, if that is enough for one."""
        plan = self._plan
        count = replace(plan.count, clean=self._clean.result(), dirty=self._dirty.result())
        is_clean_distinct = not plan.view.has_history
        rows = plan.view.sealed_rows
        return count, estimate(count, rows, is_clean_distinct=is_clean_distinct)


@any_thread
class SectionCounting:
    """Counts the keys of a section's segments, in offset order. For one thread at a time."""

    __slots__ = ("_count", "_end_offset", "_keys", "_start_offset")

    def __init__(self, count: SectionCount, start_offset: Offset, end_offset: Offset) -> None:
        """Continue after what was counted. The section's offsets are [start_offset, end_offset)."""
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._count = count
        self._keys = unpacked(count.keys)

    def result(self) -> SectionCount:
        """Returns what was counted, to the end of the last whole segment."""
        return replace(self._count, keys=packed(self._keys) if self._count.rows.segments else b"")

    def count(
        self,
        view: CleaningView,
        segments: Sequence[CleanableSegment],
        settings: CleanerSettings,
        *,
        meter: PassMeter,
    ) -> None:
        """Count those of the section's segments that were not counted; makes the sidecars that are
        missing.

        Raises:
            CorruptBatch, DecompressionTooLarge: a segment is damaged.
            CleaningAborted, StorageError: as `run_with_sidecars`.
        """
        for segment in segments:
            if segment.row.end_offset > self._count.end_offset:
                self._count_one(view, segment, settings, meter)

    def _count_one(
        self,
        view: CleaningView,
        segment: CleanableSegment,
        settings: CleanerSettings,
        meter: PassMeter,
    ) -> None:
        # A damaged sidecar is made again and read from the start: to add a key twice changes nothing.
        entries = run_with_sidecars(
            view.hash_key,
            settings,
            meter,
            lambda index: self._add(segment, index, meter),
            strategy=view.config.strategy,
        )
        self._count = replace(
            self._count,
            end_offset=segment.row.end_offset,
            rows=self._count.rows.plus(segment.row),
            entries=self._count.entries + entries,
        )

    def _add(self, segment: CleanableSegment, index: SegmentIndex, meter: PassMeter) -> int:
        """Returns how many records of the segment are in the section."""
        (indexed,) = index.index_segments([segment])
        meter.progress.expect_left(Phase.RECOPY, 0)
        meter.progress.enter(Phase.MARK)
        return sum(
            add_keys(
                self._keys,
                block.data,
                base_offset=segment.row.base_offset,
                start_offset=self._start_offset,
                end_offset=self._end_offset,
            )
            for block in indexed.blocks()
        )

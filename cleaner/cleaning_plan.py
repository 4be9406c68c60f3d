"""What a cleaning pass is going to do, and the log that it does it to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cleaner.pick import Assessment, Reason
from storage.cleaned_segment import CleanedSegment, CleanedSegmentWriter
from storage.cleaning_view import CleanableSegment, CleaningView
from storage.manifest import SegmentRow


class CleanableLog(Protocol):
    """What a pass does to a log; `storage.log.PartitionLog` is one."""

    @property
    def generation(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    def new_cleaned_segment(self, base_offset: int) -> CleanedSegmentWriter: ...
    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: int | None,
    ) -> None: ...
    def commit_clean_offset(self, clean_offset: int, *, generation: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """What a pass is going to do, decided at one moment; executing it reads nothing else."""

    view: CleaningView
    """The log as it was, with its generation and readable segments."""
    reason: Reason
    start_offset: int
    """The first dirty offset."""
    end_offset: int
    """The first uncleanable offset."""
    dirty_ratio: float
    now_ms: int
    """Up to here delete horizons have passed."""
    stamp_ms: int
    """From here new delete horizons count; `now_ms` but after a step of the clock."""

    @property
    def delete_horizon_ms(self) -> int:
        """The horizon of tombstones that are cleaned for the first time."""
        return self.stamp_ms + self.view.config.delete_retention_ms

    def segments_from(self, log_start_offset: int) -> tuple[CleanableSegment, ...]:
        """The segments that the pass looks at: all below its end that retention has left."""
        return tuple(
            segment
            for segment in self.view.segments
            if segment.row.base_offset < self.end_offset
            and segment.row.end_offset > log_start_offset
        )


def plan_pass(
    view: CleaningView, assessment: Assessment, *, now_ms: int, stamp_ms: int
) -> CleaningPlan:
    """Turn an eligible log's assessment into a plan."""
    assert assessment.reason is not None
    return CleaningPlan(
        view=view,
        reason=assessment.reason,
        start_offset=assessment.bounds.first_dirty_offset,
        end_offset=assessment.bounds.first_uncleanable_offset,
        dirty_ratio=assessment.dirty_ratio,
        now_ms=now_ms,
        stamp_ms=stamp_ms,
    )

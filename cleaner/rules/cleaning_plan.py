"""The plan of a cleaning pass, and the interface of the log that it cleans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cleaner.rules.fence import Fence, hold_of
from cleaner.rules.hold import NO_HOLD, Hold
from cleaner.rules.pick import NOTHING, Assessment, Reason, Remainder, uncovered_since_ms
from cleaner.rules.report import PassReport
from cleaner.rules.spared import SparedUntil
from protocol.wire.numbers import Offset
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.config_property import LONG_MAX
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.log.cleaning_view import CleanableSegment, CleaningView
from storage.segment.cleaned_segment import CleanedSegment, CleanedSegmentWriter

SWEEP_PAUSE_MS_MIN = 60_000
SWEEP_PAUSE_FACTOR = 20
"""Between passes for older values lies a minute, and 20 times the duration of the last pass: so they
take a twentieth of a thread at most."""


class CleanableLog(Protocol):
    """The operations that a pass needs of a log; `storage.log.cleaning.LogCleaning` has them."""

    @property
    def generation(self) -> int: ...
    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def kept_number(self) -> int: ...
    def new_cleaned_segment(
        self, base_offset: Offset, strategy: CompactionStrategy
    ) -> CleanedSegmentWriter: ...
    def swap(
        self,
        sources: Sequence[SegmentRow],
        cleaned: Sequence[CleanedSegment],
        *,
        generation: int,
        clean_offset: Offset | None,
        has_history: bool | None,
    ) -> None: ...
    def commit_clean_offset(
        self, clean_offset: Offset, *, generation: int, is_finished: bool, has_history: bool
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The plan of a pass, made at one moment; the pass reads no other state of the log."""

    view: CleaningView
    """The log as it was, with its generation and readable segments."""
    reason: Reason
    start_offset: Offset
    """The first dirty offset."""
    end_offset: Offset
    """The first uncleanable offset."""
    dirty_ratio: float
    now_ms: int
    """Delete horizons up to this wall time have passed."""
    stamp_ms: int
    """New delete horizons count from this wall time; equal to `now_ms` unless the clock stepped."""
    hold: Hold = NO_HOLD
    """Which tombstones and markers stay even after their delete horizon."""
    must_cover: Offset = NOTHING
    """See `uncovered_since_ms`."""
    sweeps: bool = False
    """Whether the pass judges the older values of all keys, and not only of those with new records."""
    history_due_ms: int = LONG_MAX
    """When the older values that the pass does not judge may have to go; LONG_MAX: never."""
    spares: bool = False
    """Whether the pass leaves segments of which only a small share is superseded."""
    due_ms_of_spared: int = LONG_MAX
    """When records must go that such a pass leaves; LONG_MAX: never."""
    known_fences: Sequence[Fence] = ()
    """Those of the last pass. They only tell since when a fence stands: each pass finds its own."""

    @property
    def leaves_history(self) -> bool:
        """Whether keys may have older values below the clean offset after the pass."""
        keeps_more = self.view.config.history.keeps_more
        return keeps_more or (self.view.has_history and not self.sweeps)

    @property
    def delete_horizon_ms(self) -> int:
        """The delete horizon of tombstones that are cleaned for the first time."""
        return self.stamp_ms + self.view.config.delete_retention_ms

    def segments_from(self, log_start_offset: Offset) -> tuple[CleanableSegment, ...]:
        """Returns the segments that the pass covers: those below its end that retention has left."""
        return tuple(
            segment
            for segment in self.view.segments
            if segment.row.base_offset < self.end_offset
            and segment.row.end_offset > log_start_offset
        )


def at_horizon_clock(plan: CleaningPlan, end_offset: Offset) -> CleaningPlan:
    """Returns the plan with the clock by which tombstones go, for a pass that ends at `end_offset`.

    Where records have versions, a tombstone stays until the records appended before its horizon were
    compared with it, so the first append above the pass's end is the latest horizon that counts.
    """
    if not plan.view.config.strategy.has_versions:
        return plan
    since_ms = uncovered_since_ms(plan.view, plan.view.config, end_offset, plan.must_cover)
    return replace(plan, now_ms=min(plan.now_ms, since_ms))


def held_by_fences(plan: CleaningPlan, fences: Sequence[Fence]) -> CleaningPlan:
    """Returns the plan with the hold of fences that the pass has found."""
    has_versions = plan.view.config.strategy.has_versions
    return replace(plan, hold=hold_of(plan.hold, fences, has_versions=has_versions))


def plan_pass(
    view: CleaningView, assessment: Assessment, *, now_ms: int, stamp_ms: int
) -> CleaningPlan:
    """Returns the plan for an eligible log, from its assessment."""
    assert assessment.reason is not None
    return CleaningPlan(
        view=view,
        reason=assessment.reason,
        start_offset=assessment.bounds.first_dirty_offset,
        end_offset=assessment.bounds.first_uncleanable_offset,
        dirty_ratio=assessment.dirty_ratio,
        now_ms=now_ms,
        stamp_ms=stamp_ms,
        hold=assessment.hold,
        must_cover=assessment.must_cover,
        sweeps=assessment.sweeps,
        history_due_ms=assessment.history_due_ms,
        spares=assessment.spares,
        due_ms_of_spared=_due_ms_of_spared(view, assessment, now_ms),
        known_fences=assessment.known_fences,
    )


def _due_ms_of_spared(view: CleaningView, assessment: Assessment, now_ms: int) -> int:
    """Returns when records must go that a pass leaves now. Without dirty ones, the settings have changed
    what is superseded."""
    latest_ms = min(now_ms + view.config.max_compaction_lag_ms, LONG_MAX)
    return min(assessment.spared_due_ms, assessment.dirty_due_ms, latest_ms)


def remainder_of(plan: CleaningPlan, report: PassReport) -> Remainder:
    """Returns what a completed pass had to leave."""
    return Remainder(
        first_uncleanable_offset=plan.end_offset,
        now_ms=_acted_on_ms(plan, report),
        is_stuck=(
            report.reached_offset == plan.start_offset < plan.end_offset and not report.is_tail_lost
        ),
        is_tail_lost=report.is_tail_lost,
        hold_offset=Offset(report.hold_offset),
        fences=report.fences,
        history=plan.view.config.history,
        history_due_ms=_next_sweep_ms(plan, report),
        spared=SparedUntil(report.spared_due_ms, plan.view.config.max_compaction_lag_ms),
    )


def _next_sweep_ms(plan: CleaningPlan, report: PassReport) -> int:
    """Returns when older values may have to go that the pass has left, judged by it or not; not before
    a pause."""
    due_ms = report.history_due_ms
    if plan.view.has_history and not plan.sweeps:
        due_ms = min(due_ms, plan.history_due_ms)
    pause_ms = max(SWEEP_PAUSE_MS_MIN, int(report.seconds * 1000 * SWEEP_PAUSE_FACTOR))
    return min(max(due_ms, plan.now_ms + pause_ms), LONG_MAX) if due_ms < LONG_MAX else due_ms


def _acted_on_ms(plan: CleaningPlan, report: PassReport) -> int:
    """Returns the clock up to which the pass has acted on horizons."""
    if report.has_contested_tombstones:
        return UNKNOWN
    # A pass that ended early, before an undecided transaction, would do the same again.
    is_cut_short = report.horizon_clock_ms < at_horizon_clock(plan, plan.end_offset).now_ms
    return plan.now_ms if is_cut_short else min(plan.now_ms, report.horizon_clock_ms)

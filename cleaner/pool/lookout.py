"""Assesses logs for the pool, and remembers what past passes left and how long each log has waited.

The rules are in `cleaner/rules/pick.py` and `cleaner/rules/urgency.py`, both pure; this module applies
them to the logs and the clocks. The pool looks at ten thousand logs after every back-off, so a look
reads the segments directly and builds no `CleaningView`; only the picked log gets one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from cleaner.expiry.sweep import SweepPlan
from cleaner.inspect.policy_preview import as_configured
from cleaner.pacing.clock import Clock, HorizonClock
from cleaner.pool.expiries import Expiries
from cleaner.pool.key_estimates import KeyEstimates
from cleaner.rules.cleaning_plan import CleaningPlan, plan_pass, remainder_of
from cleaner.rules.hold import HoldOf
from cleaner.rules.look import Look
from cleaner.rules.pick import NOTHING, Assessment, LogState, Reason, Remainder, assess
from cleaner.rules.report import PassReport
from cleaner.rules.urgency import HEAD_STARTS, Candidate, in_turn
from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.segment.segment import Segment
from storage.threads import any_thread, loop_thread

SEGMENTS_PER_TURN = 5000
"""Segments to look at, at 0.2 microseconds each, before yielding to the event loop."""

LOG_COST_IN_SEGMENTS = 100
"""The fixed cost of looking at a log, in segments."""

SECONDS_PER_TURN = 0.002
"""The most time for one turn of the event loop. What a look at a log costs also depends on how many
groups hold its tombstones."""


@dataclass(slots=True, kw_only=True)
class LogSketch:
    """A log as a look sees it; made on the loop's thread, so that no append happens meanwhile."""

    sealed_rows: Sequence[Segment]
    active_row: Segment
    clean_offset: Offset
    has_history: bool
    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset


@loop_thread
class Lookout:
    """The pool's knowledge about waiting logs. Owned by the pool."""

    __slots__ = (
        "_clock",
        "_eligible_since",
        "_first_ends",
        "_gains",
        "_hold_of",
        "_horizon_clock",
        "_remainders",
        "counts",
        "expiries",
        "is_by_benefit",
        "short_of_space",
    )

    def __init__(self, clock: Clock, hold_of: HoldOf) -> None:
        # Constant after construction.
        self._hold_of = hold_of
        self._clock = clock
        self._horizon_clock = HorizonClock(clock)
        self.expiries = Expiries(clock)
        """What it knows about values that expire."""
        self.counts = KeyEstimates(clock)
        """What it knows about the keys of logs."""
        # State.
        self._remainders: dict[TopicPartition, tuple[int, Remainder]] = {}
        """Each with the log's `rewrites`: an undo, a truncation or a resync brings records back that the
        pass has judged, or takes others away."""
        self._first_ends: dict[TopicPartition, Offset] = {}
        self._eligible_since: dict[TopicPartition, float] = {}
        """Monotonic seconds at which a look first found the log eligible."""
        self._gains: dict[TopicPartition, float] = {}
        """The share of a log's dirty bytes that the last pass over it freed."""
        self.short_of_space: frozenset[str] = frozenset()
        """The ids of the log directories whose disks are nearly full."""
        self.is_by_benefit = False
        """Whether the order is by the bytes freed per byte of I/O."""

    async def look_at_all(
        self, logs: Iterable[PartitionLog], *, may_run: Callable[[PartitionLog], bool]
    ) -> Look:
        """Look at each log that is not offline; `may_run`: as for `look_at`."""
        look = self.begin()
        async for log in self._yielding(logs):
            self.look_at(log, look, may_run=may_run(log))
        return look

    async def queue(
        self, logs: Iterable[PartitionLog], *, may_run: Callable[[PartitionLog], bool]
    ) -> list[Candidate]:
        """Returns the eligible logs over which a pass may run, in the order of their turns."""
        waiting = [
            candidate
            async for log in self._yielding(logs)
            if may_run(log) and (candidate := self.candidate(log))
        ]
        return in_turn(waiting)

    def begin(self) -> Look:
        """Start a look at all logs."""
        horizon_now_ms, _ = self._horizon_clock.read()
        return Look(self._clock.now_ms(), horizon_now_ms)

    def look_at(self, log: PartitionLog, look: Look, *, may_run: bool) -> None:
        """Assess one log, roll its active segment if that is due, and offer it if it is eligible.

        Args:
            may_run: whether a pass over it could start now; if not, only its waiting time counts.
        """
        if log.log_start_offset == log.log_end_offset:
            return
        assessment = self._assess(sketch(log), log, look)
        if log.config.expires_values and not assessment.known_fences:
            self.expiries.look_at(log, look, may_run=may_run)
        if assessment.roll_ms <= look.now_ms:
            # If the disk is broken, the next append fails, reports it and takes the log offline.
            with contextlib.suppress(StorageError):
                log.roll(look.now_ms)
            assessment = self._assess(sketch(log), log, look)
        look.consider(assessment)
        if self.counts.is_on:
            has_space = log.identity.directory_id not in self.short_of_space
            self.counts.look_at(log, assessment, look, may_run=may_run and has_space)
        if assessment.reason is None:
            self._eligible_since.pop(log.topic_partition, None)
            return
        candidate = self._candidate(log, assessment, look.now_ms)
        if may_run:
            look.offer(log, candidate)

    def assess(self, log: PartitionLog) -> Assessment:
        """Returns the current assessment of a log."""
        return self._assess(sketch(log), log, self.begin())

    def candidate(self, log: PartitionLog) -> Candidate | None:
        """Returns the log as a candidate for the next pass; None if it is not eligible."""
        look = self.begin()
        assessment = self._assess(sketch(log), log, look)
        return self._candidate(log, assessment, look.now_ms) if assessment.reason else None

    def _candidate(self, log: PartitionLog, assessment: Assessment, now_ms: int) -> Candidate:
        partition, now = log.topic_partition, self._clock.monotonic()
        waited_ms = int((now - self._eligible_since.setdefault(partition, now)) * 1000)
        late_ms = None
        if assessment.reason is Reason.DEADLINE:
            # The deadline is known even if this process has just started; that of superseded records
            # that passes have left may not be.
            deadline_ms = min(assessment.deadline_ms, assessment.spared_due_ms or LONG_MAX)
            late_ms = now_ms - deadline_ms if deadline_ms <= now_ms else waited_ms
            waited_ms = max(waited_ms, late_ms)
        reclaimable = self.counts.estimate(log)
        last_gain = self._gains.get(partition, 1.0)
        return Candidate(
            topic_partition=partition,
            assessment=assessment,
            waited_ms=waited_ms,
            late_ms=late_ms,
            is_disk_nearly_full=log.identity.directory_id in self.short_of_space,
            gain=last_gain if reclaimable is None else reclaimable.gain,
            reclaimable=reclaimable,
            head_start=HEAD_STARTS[log.config.compaction_priority],
            is_by_benefit=self.is_by_benefit,
        )

    def plan(
        self, log: PartitionLog, *, requested: bool = False, as_if_rolled: bool = False
    ) -> CleaningPlan | None:
        """Returns the plan for a pass over the log as it is now; None if it is no longer eligible.

        `as_if_rolled` plans the pass as if the active segment rolled now.
        """
        view = log.cleaning_view(as_if_rolled=as_if_rolled)
        assessment = self._assess(view, log, self.begin(), requested=requested)
        if assessment.reason is None:
            return None
        now_ms, stamp_ms = self._horizon_clock.read()
        return plan_pass(view, assessment, now_ms=now_ms, stamp_ms=stamp_ms)

    def plan_sweep(self, log: PartitionLog) -> SweepPlan:
        """Returns the plan of a sweep for expired values, as the log is now."""
        now_ms, _ = self._horizon_clock.read()
        return self.expiries.plan(log, now_ms)

    def plan_as_configured(
        self, log: PartitionLog, config: LogConfig, log_start_offset: Offset
    ) -> CleaningPlan:
        """Returns the plan for a requested pass over the log as if it had these settings, retention had
        moved its start, and the active segment had rolled."""
        view = as_configured(log.cleaning_view(as_if_rolled=True), config, log_start_offset)
        look, end = self.begin(), view.log_end_offset
        now_ms, stamp_ms = self._horizon_clock.read()
        assessment = assess(
            view,
            config,
            look.now_ms,
            remainder=self._remainder(log),
            horizon_now_ms=look.horizon_now_ms,
            hold=self._hold_of(view),
            requested=True,
            # As the first look after the change would find it.
            must_cover=min(self._first_ends.get(log.topic_partition, end), end),
        )
        return plan_pass(view, assessment, now_ms=now_ms, stamp_ms=stamp_ms)

    def _assess(
        self, state: LogState, log: PartitionLog, look: Look, *, requested: bool = False
    ) -> Assessment:
        return assess(
            state,
            log.config,
            look.now_ms,
            remainder=self._remainder(log),
            horizon_now_ms=look.horizon_now_ms,
            hold=self._hold_of(log),
            requested=requested,
            must_cover=self._must_cover(state, log),
            is_disk_nearly_full=log.identity.directory_id in self.short_of_space,
        )

    def _must_cover(self, state: LogState, log: PartitionLog) -> Offset:
        """Returns the log's end when it was first looked at, except as a mirror.

        Records below it may have been appended elsewhere before, so their append times do not say
        whether a tombstone may go.
        """
        partition = log.topic_partition
        if log.config.is_mirror or not log.config.strategy.has_versions:
            self._first_ends.pop(partition, None)
            return NOTHING
        # A log that was cut since, or another one of this name, has nothing older above its end.
        known = self._first_ends.get(partition, state.log_end_offset)
        end = self._first_ends[partition] = Offset(min(known, state.log_end_offset))
        return end

    def completed(self, log: PartitionLog, plan: CleaningPlan, report: PassReport) -> None:
        """Learn from a completed pass; if its log is still eligible, its waiting time starts again."""
        partition = plan.view.topic_partition
        self._eligible_since.pop(partition, None)
        self.counts.forget(partition)
        self._remainders[partition] = log.rewrites, remainder_of(plan, report)
        dirty_bytes = report.dirty_ratio * (report.bytes_before + report.bytes_untouched)
        if dirty_bytes > 0:
            freed = (report.bytes_before - report.bytes_after) / dirty_bytes
            self._gains[partition] = min(max(freed, 0.0), 1.0)

    @any_thread
    def remainder_above_fences(self, log: PartitionLog) -> Remainder | None:
        """Returns what the last pass has left of a log with fences; None for other logs."""
        found = self._remainder(log)
        return found if found is not None and found.fences else None

    @any_thread
    def _remainder(self, log: PartitionLog) -> Remainder | None:
        """Returns what the last pass has left; None if the log is no longer what the pass has left."""
        rewrites, found = self._remainders.get(log.topic_partition, (0, None))
        return found if rewrites == log.rewrites else None

    async def _yielding(self, logs: Iterable[PartitionLog]) -> AsyncIterator[PartitionLog]:
        """Yields the logs that are not offline, and yields to the event loop now and then."""
        looked_at, began = 0, self._clock.monotonic()
        for log in logs:
            if log.offline_reason is None:
                yield log
            looked_at += LOG_COST_IN_SEGMENTS + len(log.segments)
            is_long = self._clock.monotonic() - began >= SECONDS_PER_TURN
            if looked_at >= SEGMENTS_PER_TURN or is_long:
                await asyncio.sleep(0)
                looked_at, began = 0, self._clock.monotonic()

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        """Forget logs that are gone."""
        for known in (self._remainders, self._first_ends, self._eligible_since, self._gains):
            for partition in [each for each in known if each not in present]:
                del known[partition]
        self.expiries.forget_all_but(present)
        self.counts.forget_all_but(present)


def stable_offset(log: PartitionLog) -> Offset:
    """Returns the last stable offset; the log start if the open transactions cannot be read now.

    The error is not lost: the next append or read reports what is wrong with the disk.
    """
    try:
        return log.last_stable_offset
    except StorageError:
        return log.log_start_offset


def sketch(log: PartitionLog) -> LogSketch:
    """Returns the log as it is now; in another thread its fields may be from different moments."""
    *sealed, active = log.segments
    return LogSketch(
        sealed_rows=sealed,
        active_row=active,
        clean_offset=log.clean_offset,
        has_history=log.has_history,
        log_start_offset=log.log_start_offset,
        last_stable_offset=stable_offset(log),
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
    )

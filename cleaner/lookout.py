"""Looks at logs for the pool, and remembers between looks what passes left and who waits since when.

The rules are `cleaner/pick.py`'s and `cleaner/urgency.py`'s, both pure; here they meet the logs and the
clocks. Ten thousand logs are looked at every back-off, so a look reads each one's segments as they
are, and builds no `CleaningView`; that is for the log that is picked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Sequence
from dataclasses import dataclass

from cleaner.cleaning_plan import CleaningPlan, plan_pass
from cleaner.clock import Clock, HorizonClock
from cleaner.look import Look
from cleaner.pick import Assessment, LogState, Reason, Remainder, assess
from cleaner.report import PassReport
from cleaner.urgency import Candidate, urgency
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.segment import Segment
from storage.topic_partition import TopicPartition


@dataclass(slots=True, kw_only=True)
class LogSketch:
    """A log as a look sees it; the loop's thread makes it, so that nothing is appended meanwhile."""

    sealed_rows: Sequence[Segment]
    active_row: Segment
    clean_offset: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


class Lookout:
    """What the pool knows of logs that wait. Owned by the pool, used on the event loop."""

    __slots__ = (
        "_clock",
        "_eligible_since",
        "_gains",
        "_horizon_clock",
        "_remainders",
        "short_of_space",
    )

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        self._horizon_clock = HorizonClock(clock)
        # State.
        self._remainders: dict[TopicPartition, Remainder] = {}
        self._eligible_since: dict[TopicPartition, float] = {}
        """Monotonic seconds at which a look first found the log eligible."""
        self._gains: dict[TopicPartition, float] = {}
        """The part of its dirty bytes that the last pass over a log has freed."""
        self.short_of_space: frozenset[str] = frozenset()
        """The ids of the log directories whose disks are nearly full."""

    def begin(self) -> Look:
        """Begin to look at all logs."""
        horizon_now_ms, _ = self._horizon_clock.read()
        return Look(self._clock.now_ms(), horizon_now_ms)

    def look_at(self, log: PartitionLog, look: Look, *, may_run: bool) -> None:
        """Look at one log, roll its active segment if that is due, and offer it if it is eligible.

        Args:
            may_run: whether a pass over it could begin now; else it only counts.
        """
        if log.log_start_offset == log.log_end_offset:
            return
        assessment = self._assess(sketch(log), log, look)
        if assessment.roll_ms <= look.now_ms:
            # What is wrong with the disk, who appends is told, and it takes the log offline.
            with contextlib.suppress(StorageError):
                log.roll(look.now_ms)
            assessment = self._assess(sketch(log), log, look)
        look.saw(assessment)
        if assessment.reason is None:
            self._eligible_since.pop(log.topic_partition, None)
            return
        candidate = self._candidate(log, assessment, look.now_ms)
        if may_run:
            look.offer(log, urgency(candidate))

    def assess(self, log: PartitionLog) -> Assessment:
        """Where a log stands now."""
        return self._assess(sketch(log), log, self.begin())

    def candidate(self, log: PartitionLog) -> Candidate | None:
        """The log as it competes for its turn now; None if it is not eligible."""
        look = self.begin()
        assessment = self._assess(sketch(log), log, look)
        return self._candidate(log, assessment, look.now_ms) if assessment.reason else None

    def _candidate(self, log: PartitionLog, assessment: Assessment, now_ms: int) -> Candidate:
        partition, now = log.topic_partition, self._clock.monotonic()
        waited_ms = int((now - self._eligible_since.setdefault(partition, now)) * 1000)
        if assessment.reason is Reason.DEADLINE:
            # Known for sure, also after a start.
            waited_ms = max(waited_ms, now_ms - assessment.deadline_ms)
        return Candidate(
            topic_partition=partition,
            assessment=assessment,
            waited_ms=waited_ms,
            is_disk_nearly_full=log.identity.directory_id in self.short_of_space,
            gain=self._gains.get(partition, 1.0),
        )

    def plan(
        self, log: PartitionLog, *, requested: bool = False, as_if_rolled: bool = False
    ) -> CleaningPlan | None:
        """The plan for a pass over the log as it is now; None if it is not eligible (any more).

        `as_if_rolled` plans what a pass would do if the active segment rolled now.
        """
        view = log.cleaning_view(as_if_rolled=as_if_rolled)
        assessment = self._assess(view, log, self.begin(), requested=requested)
        if assessment.reason is None:
            return None
        now_ms, stamp_ms = self._horizon_clock.read()
        return plan_pass(view, assessment, now_ms=now_ms, stamp_ms=stamp_ms)

    def _assess(
        self, state: LogState, log: PartitionLog, look: Look, *, requested: bool = False
    ) -> Assessment:
        return assess(
            state,
            log.config,
            look.now_ms,
            remainder=self._remainders.get(log.topic_partition),
            horizon_now_ms=look.horizon_now_ms,
            requested=requested,
        )

    def completed(self, plan: CleaningPlan, report: PassReport) -> None:
        """Learn from a pass that came to its end; its log waits anew, if it is still eligible."""
        partition = plan.view.topic_partition
        self._eligible_since.pop(partition, None)
        self._remainders[partition] = Remainder(
            first_uncleanable_offset=plan.end_offset,
            now_ms=plan.now_ms,
            is_stuck=report.end_offset == plan.start_offset < plan.end_offset,
        )
        dirty_bytes = report.dirty_ratio * (report.bytes_before + report.bytes_untouched)
        if dirty_bytes > 0:
            freed = (report.bytes_before - report.bytes_after) / dirty_bytes
            self._gains[partition] = min(max(freed, 0.0), 1.0)

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        """Forget logs that are gone."""
        for known in (self._remainders, self._eligible_since, self._gains):
            for partition in [each for each in known if each not in present]:
                del known[partition]


def stable_offset(log: PartitionLog) -> int:
    """The last stable offset; the log's start where what is undecided cannot be read now.

    Who appends or reads is told what is wrong with the disk.
    """
    try:
        return log.last_stable_offset
    except StorageError:
        return log.log_start_offset


def sketch(log: PartitionLog) -> LogSketch:
    """The log as it is now; outside the loop's thread it may be torn, never wrong."""
    *sealed, active = log.segments
    return LogSketch(
        sealed_rows=sealed,
        active_row=active,
        clean_offset=log.clean_offset,
        log_start_offset=log.log_start_offset,
        last_stable_offset=stable_offset(log),
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
    )

"""What is known of the keys of each log, and which logs are to be counted.

The rules are in `cleaner/rules/reclaimable.py`, which is pure; this module applies them to the logs.
`Lookout` asks it about each log; `cleaner/pool/index_ahead.py` counts.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from cleaner.pacing.clock import Clock
from cleaner.passes.index_ahead import CountPlan
from cleaner.rules.due_ranges import pause_ms
from cleaner.rules.look import Look
from cleaner.rules.pick import NOTHING, Assessment
from cleaner.rules.reclaimable import (
    NOTHING_DUE,
    Due,
    KeyCount,
    Reclaimable,
    due,
    has_meaning,
    what_holds,
)
from protocol.wire.numbers import Offset
from storage.formats.compaction_window import is_open
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.segment.segment import Segment
from storage.threads import any_thread, loop_thread

LOGS_MAX = 10_000
"""So many logs are counted at once, with two sketches of 2 KiB at most each: 40 MiB."""


State = tuple[tuple[Segment, ...], LogConfig, Offset, Offset]
"""Segments, settings, first dirty and first uncleanable offset."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """What is known of one log."""

    log: PartitionLog
    rewrites: int
    """Of the log: a truncation may lead to other segments that look the same."""
    count: KeyCount
    state: State | None = None
    """The log at the last look: as long as it is the same, so is what is due."""
    due: Due = NOTHING_DUE
    end_offset: Offset = NOTHING
    """No segment is counted that reaches above it."""
    estimate: Reclaimable | None = None
    next_at: float = 0.0
    """It is not counted before, in monotonic seconds."""
    clean_at: float = 0.0
    """The same of its clean section."""


@loop_thread
class KeyEstimates:
    """What the pool knows of the keys of logs. Owned by its `Lookout`."""

    __slots__ = ("_clock", "_known", "is_on")

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        # State.
        self.is_on = False
        """Whether logs are counted."""
        self._known: dict[TopicPartition, _Known] = {}

    def switch(self, *, is_on: bool) -> None:
        """Count logs from now on, or forget them all."""
        self.is_on = is_on
        if not is_on:
            self._known.clear()

    def look_at(
        self, log: PartitionLog, assessment: Assessment, look: Look, *, may_run: bool
    ) -> None:
        """Offer a log whose segments should be counted; forget one for which that has no meaning."""
        known, bounds = self._known.get(log.topic_partition), assessment.bounds
        state = log.segments, log.config, bounds.first_dirty_offset, bounds.first_uncleanable_offset
        if known is None or not assessment.cleanable_bytes or known.state != state:
            known = self._refreshed(log, assessment)
        if known is None or known.due == NOTHING_DUE or not may_run:
            return
        now, waits = self._clock.monotonic(), known.due
        is_due = now >= known.next_at and (waits.dirty or now >= known.clean_at)
        if is_due and is_open(log.config.windows, look.now_ms):
            look.offer_count(log)

    def _refreshed(self, log: PartitionLog, assessment: Assessment) -> _Known | None:
        """Returns what is known of a log, in accordance with its present state."""
        partition, bounds, segments = log.topic_partition, assessment.bounds, log.segments
        if not has_meaning(log.config, assessment):
            self._known.pop(partition, None)
            return None
        known, first_dirty = self._known.get(partition), bounds.first_dirty_offset
        if known is None or known.log is not log or known.rewrites != log.rewrites:
            if known is None and len(self._known) >= LOGS_MAX:
                return None
            count = KeyCount(first_dirty_offset=first_dirty)
            known = self._known[partition] = _Known(log=log, rewrites=log.rewrites, count=count)
        count = what_holds(known.count, segments[:-1], first_dirty)
        if count != known.count:
            known.count, known.estimate = count, None
        known.state = segments, log.config, first_dirty, bounds.first_uncleanable_offset
        known.due = due(count, segments[:-1], assessment)
        known.end_offset = bounds.first_uncleanable_offset
        return known

    def plan(self, log: PartitionLog) -> CountPlan | None:
        """Returns what to count of a log now; None if the last look no longer tells."""
        known, view = self._known.get(log.topic_partition), log.cleaning_view()
        if known is None or known.log is not log or known.rewrites != log.rewrites:
            return None
        first_dirty = known.count.first_dirty_offset
        if max(view.clean_offset, view.log_start_offset) != first_dirty:
            return None
        is_clean_due = known.due.clean and self._clock.monotonic() >= known.clean_at
        return CountPlan(
            view=view,
            count=what_holds(known.count, view.sealed_rows, first_dirty),
            due=Due(clean=is_clean_due, dirty=known.due.dirty),
            end_offset=known.end_offset,
        )

    def counted(
        self,
        plan: CountPlan,
        result: tuple[KeyCount, Reclaimable | None],
        *,
        seconds: float,
        rest_s: float,
    ) -> None:
        """Learn from a task that has counted a log, to the end of its plan or not.

        Args:
            seconds: how long it took.
            rest_s: how long the log is not counted, because it has failed.
        """
        known = self._known.get(plan.view.topic_partition)
        first_dirty = plan.count.first_dirty_offset
        if known is None or known.count.first_dirty_offset != first_dirty:
            return
        now = self._clock.monotonic()
        known.count, known.estimate = result
        known.state = None  # The next look finds out what is due.
        known.next_at = now + rest_s
        if plan.due.clean:
            known.clean_at = now + pause_ms(seconds) / 1000

    def forget(self, partition: TopicPartition) -> None:
        """Forget a log that a pass has cleaned."""
        self._known.pop(partition, None)

    @any_thread
    def estimate(self, log: PartitionLog) -> Reclaimable | None:
        """Returns what a pass over a log would free, as of the last count; None if it is not known."""
        known = self._known.get(log.topic_partition)
        return known.estimate if known is not None and known.log is log else None

    def estimates(self) -> dict[TopicPartition, Reclaimable]:
        """Returns all estimates."""
        return {
            partition: known.estimate
            for partition, known in self._known.items()
            if known.estimate is not None
        }

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        """Forget logs that are gone."""
        for partition in [each for each in self._known if each not in present]:
            del self._known[partition]

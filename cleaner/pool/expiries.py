"""When logs are swept for expired values, and what is known of when their values expire.

The rules are in `cleaner/rules/due_ranges.py`, which is pure; this module applies them to the logs and
the clocks. `Lookout` asks it about each log whose topic has a time to live.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from cleaner.expiry.sweep import SweepPlan
from cleaner.pacing.clock import Clock
from cleaner.rules.due_ranges import Ranges, due_ms, pause_ms
from cleaner.rules.expiry import NEVER
from cleaner.rules.expiry_report import NOT_SWEPT, ExpiryFacts, ExpiryReport, ExpiryTotals
from cleaner.rules.look import Look
from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.formats.compaction_strategy import CompactionStrategy
from storage.formats.compaction_ttl import CompactionTtl
from storage.formats.compaction_window import opens_ms
from storage.formats.config_property import LONG_MAX
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread

Basis = tuple[PartitionLog, CompactionTtl, CompactionStrategy, int, Offset]
"""What the knowledge of a log depends on."""


@dataclass(slots=True)
class _Known:
    """What is known of one log."""

    basis: Basis
    version: int = 0
    """Grows with each change of the basis."""
    ranges: Ranges = ()
    next_at: float = 0.0
    """The next sweep may begin then, in monotonic seconds."""
    totals: ExpiryTotals = NOT_SWEPT
    least: tuple[Ranges, Offset, int] | None = None
    """When a value in the ranges from a log start on expires first, as it was last computed."""


@loop_thread
class Expiries:
    """What the pool knows about expiry. Owned by its `Lookout`."""

    __slots__ = ("_clock", "_known")

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        # State.
        self._known: dict[TopicPartition, _Known] = {}

    def look_at(self, log: PartitionLog, look: Look, *, may_run: bool) -> None:
        """Offer a log whose values expire if a sweep is due, or note when it will be."""
        known, now = self._known_of(log), self._clock.monotonic()
        moment_ms = self._due_ms(log, known)
        if moment_ms == NEVER:
            return
        # The clock that values expire by may be behind.
        moment_ms += look.now_ms - look.horizon_now_ms if moment_ms else 0
        allowed_ms = look.now_ms + int((known.next_at - now) * 1000)
        opens_at_ms = opens_ms(log.config.windows, look.now_ms)
        moment_ms = max(moment_ms, allowed_ms, opens_at_ms if opens_at_ms < LONG_MAX else 0)
        if moment_ms > look.now_ms:
            look.wake_ms = min(look.wake_ms, moment_ms)
        elif may_run:
            look.offer_sweep(log, known.next_at)

    def plan(self, log: PartitionLog, horizon_now_ms: int) -> SweepPlan:
        """Returns the plan of a sweep now."""
        known = self._known_of(log)
        return SweepPlan(
            view=log.cleaning_view(as_if_rolled=True),
            now_ms=horizon_now_ms,
            ranges=known.ranges,
            knowledge=known.version,
        )

    def completed(self, log: PartitionLog, plan: SweepPlan, report: ExpiryReport) -> None:
        """Learn from a sweep that has completed."""
        known = self._known_of(log)
        if known.version == plan.knowledge:
            known.ranges = report.ranges
        known.totals = known.totals.with_report(report)
        known.next_at = self._clock.monotonic() + pause_ms(report.seconds) / 1000

    def stopped(self, log: PartitionLog, seconds: float, *, at_least_s: float = 0.0) -> None:
        """Note that a sweep has ended early.

        Args:
            seconds: how long it took.
            at_least_s: how long the next one waits at least.
        """
        rest_s = max(pause_ms(seconds) / 1000, at_least_s)
        self._known_of(log).next_at = self._clock.monotonic() + rest_s

    def facts(self, log: PartitionLog) -> ExpiryFacts:
        """Returns what is known of a log whose values expire."""
        known = self._known_of(log)
        return ExpiryFacts(due_ms=self._due_ms(log, known), totals=known.totals)

    def all_facts(self) -> dict[TopicPartition, ExpiryFacts]:
        """Returns what is known of each log that was swept since the start."""
        swept = [known.basis[0] for known in self._known.values() if known.totals.sweeps]
        return {log.topic_partition: self.facts(log) for log in swept if log.config.expires_values}

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        """Forget logs that are gone."""
        for partition in [each for each in self._known if each not in present]:
            del self._known[partition]

    def _due_ms(self, log: PartitionLog, known: _Known) -> int:
        try:
            end = log.last_stable_offset
        except StorageError:
            return NEVER  # The next append or read reports what is wrong with the disk.
        ranges, start = known.ranges, log.log_start_offset
        if not ranges or ranges[-1].end < end:
            return due_ms(ranges, start=start, end=end)
        # A large log has many ranges, and a status request asks for every log.
        if known.least is None or known.least[0] is not ranges or known.least[1] != start:
            known.least = ranges, start, due_ms(ranges, start=start, end=end)
        return known.least[2]

    def _known_of(self, log: PartitionLog) -> _Known:
        """Returns what is known of a log; nothing, once it or its settings are others."""
        partition, basis = log.topic_partition, _basis_of(log)
        known = self._known.get(partition)
        if known is None or known.basis[0] is not log:
            known = self._known[partition] = _Known(basis)
        elif known.basis != basis:
            known.basis, known.ranges = basis, ()
            known.version += 1
        return known


def _basis_of(log: PartitionLog) -> Basis:
    config = log.config
    strategy = config.strategy.by_rank()
    # By versions, a value may have lost against one below it, which DeleteRecords or retention removes.
    start = log.log_start_offset if strategy.has_versions else Offset(0)
    return log, config.ttl, strategy, log.rewrites, start

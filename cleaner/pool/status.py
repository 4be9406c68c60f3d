"""Snapshots of the pool for status reports. Plain values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from cleaner.pacing.paused import Paused
from cleaner.pacing.progress import ProgressSnapshot
from cleaner.pacing.quarantine import Quarantined
from cleaner.pacing.throttle import IoRates
from cleaner.rules.expiry_report import ExpiryFacts
from cleaner.rules.fence import Fence
from cleaner.rules.reclaimable import Reclaimable
from cleaner.rules.report import PassReport
from storage.formats.topic_partition import TopicPartition


class Task(enum.Enum):
    """The kinds of tasks that run over a log."""

    CLEAN = "clean"
    DRY_RUN = "plan"
    SEARCH = "find-key"
    LEASE = "lease"
    """Another process cleans it."""
    DIGEST = "digest"
    KEYS = "keys"
    """Its keys are counted."""
    EXPIRE = "expire"
    """It is swept for expired values."""
    INDEX = "index"
    """Its keys are counted, and its key sidecars made, while nothing else is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStatus:
    """A running pass at one moment."""

    topic_partition: TopicPartition
    task: Task
    reason: str
    progress: ProgressSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """The pool at one moment."""

    running: tuple[RunningStatus, ...]
    quarantined: tuple[Quarantined, ...]
    last_reports: Mapping[TopicPartition, PassReport]
    """The last completed pass of each partition in this process, without its groups."""
    paused: Paused
    threads: int
    rates: IoRates
    """The limits that the operator has set."""
    guard_rate: float
    """The latency guard's limit in bytes per second; inf while it sets none."""
    stalled_ms: int
    """A task without progress for that long has stalled."""
    is_lifted: bool
    """Whether all budgets are lifted because a disk is nearly full."""
    expiries: Mapping[TopicPartition, ExpiryFacts] = field(default_factory=dict)
    """The logs that were swept for expired values since the start."""
    reclaimable: Mapping[TopicPartition, Reclaimable] = field(default_factory=dict)
    """What passes over the logs would free whose keys were counted."""

    @property
    def busy(self) -> tuple[RunningStatus, ...]:
        """The running tasks that a pass waits for: all but those that give way to it."""
        return tuple(each for each in self.running if each.task is not Task.INDEX)

    def running_over(self, partition: TopicPartition) -> RunningStatus | None:
        """Returns the task that keeps passes off a partition, if any."""
        return next((each for each in self.busy if each.topic_partition == partition), None)

    @property
    def fenced(self) -> dict[TopicPartition, tuple[Fence, ...]]:
        """The damaged segments that the last pass over a log has cleaned around, by log."""
        reports = self.last_reports.items()
        return {partition: report.fences for partition, report in reports if report.fences}

    def quarantined_entry(self, partition: TopicPartition) -> Quarantined | None:
        """Returns a partition's quarantine entry, if any."""
        return next((each for each in self.quarantined if each.topic_partition == partition), None)

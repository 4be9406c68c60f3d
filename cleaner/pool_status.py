"""The pool at one moment, as others see it. Plain values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from cleaner.paused import Paused
from cleaner.progress import ProgressSnapshot
from cleaner.quarantine import Quarantined
from cleaner.report import PassReport
from cleaner.throttle import IoRates
from storage.topic_partition import TopicPartition


class Task(enum.Enum):
    """What runs over a log."""

    CLEAN = "clean"
    DRY_RUN = "plan"
    SEARCH = "find-key"
    LEASE = "lease"
    """Another process cleans it."""
    DIGEST = "digest"


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
    """What the operator allows."""
    guard_rate: float
    """What the latency guard allows, in bytes per second; inf while it does not hold."""
    is_lifted: bool
    """Whether no budget holds, because a disk is nearly full."""

    def running_over(self, partition: TopicPartition) -> RunningStatus | None:
        """What runs over a partition."""
        return next((each for each in self.running if each.topic_partition == partition), None)

    def quarantined_entry(self, partition: TopicPartition) -> Quarantined | None:
        """Why and until when a partition rests."""
        return next((each for each in self.quarantined if each.topic_partition == partition), None)

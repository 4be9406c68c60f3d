"""What runs in the pool, and the pool as others see it."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from cleaner.paused import Paused
from cleaner.progress import PassProgress, ProgressSnapshot
from cleaner.quarantine import Quarantined
from cleaner.report import PassReport
from cleaner.throttle import IoRates
from storage.log import PartitionLog
from storage.topic_partition import TopicPartition


class Task(enum.Enum):
    """What runs over a log."""

    CLEAN = "clean"
    DRY_RUN = "plan"


class RunningPass:
    """A pass under way: how far it is, the way to stop it, and to learn that it has ended."""

    __slots__ = ("ended", "log", "progress", "reason", "stop", "stopped_because", "task")

    def __init__(self, log: PartitionLog, task: Task, reason: str, progress: PassProgress) -> None:
        # Constant after construction.
        self.log = log
        self.task = task
        self.reason = reason
        """The name of the `pick.Reason`."""
        self.progress = progress
        self.stop = threading.Event()
        self.ended = asyncio.Event()
        # State.
        self.stopped_because: str | None = None

    def halt(self, because: str) -> None:
        """Stop it within a chunk."""
        self.stopped_because = self.stopped_because or because
        self.stop.set()

    def status(self) -> RunningStatus:
        """The pass as it is now."""
        return RunningStatus(
            topic_partition=self.log.topic_partition,
            task=self.task,
            reason=self.reason,
            progress=self.progress.snapshot(),
        )


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

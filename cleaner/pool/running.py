"""A running task of the pool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from cleaner.pacing.progress import PassProgress
from cleaner.pool.status import RunningStatus, Task
from storage.log.log import PartitionLog


class RunningPass:
    """A running pass or other task: its progress, the way to stop it, and the event of its end."""

    __slots__ = (
        "ended",
        "log",
        "on_halt",
        "progress",
        "reason",
        "stop",
        "stopped_because",
        "task",
    )

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
        self.on_halt: Callable[[], None] = lambda: None
        """Called on the event loop by `halt`, for tasks without a thread that checks `stop`."""

    def halt(self, because: str) -> None:
        """Stop the task within a chunk."""
        self.stopped_because = self.stopped_because or because
        self.stop.set()
        self.on_halt()

    def status(self) -> RunningStatus:
        """Returns the current status."""
        return RunningStatus(
            topic_partition=self.log.topic_partition,
            task=self.task,
            reason=self.reason,
            progress=self.progress.snapshot(),
        )

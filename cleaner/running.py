"""A pass under way, as the pool holds it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from cleaner.pool_status import RunningStatus, Task
from cleaner.progress import PassProgress
from storage.log import PartitionLog


class RunningPass:
    """A pass under way: how far it is, the way to stop it, and to learn that it has ended."""

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
        """Told of it on the event loop, for who runs nothing that would look at `stop`."""

    def halt(self, because: str) -> None:
        """Stop it within a chunk."""
        self.stopped_because = self.stopped_because or because
        self.stop.set()
        self.on_halt()

    def status(self) -> RunningStatus:
        """The pass as it is now."""
        return RunningStatus(
            topic_partition=self.log.topic_partition,
            task=self.task,
            reason=self.reason,
            progress=self.progress.snapshot(),
        )

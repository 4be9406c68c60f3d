"""What operators asked the cleaner for, as jobs that can be looked at until long after they ended.

    waiting -> running -> done        with a report, or what a pass would do
                       -> failed      with a sentence
                       -> stopped     somebody stopped it, or its log changed

A job has a part for each partition; it goes on whether anybody looks or not.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from cleaner.dry_run import DryRun
from cleaner.key_search import KeyHistory
from cleaner.log_digest import LogDigest
from cleaner.meter import CleaningAborted
from cleaner.report import PassReport
from cleaner.running import RunningPass
from server.tasks import spawn
from storage.log import PartitionLog
from storage.topic_partition import TopicPartition

_log = logging.getLogger("server.compaction_jobs")

FINISHED_KEPT = 200
"""So many finished jobs can still be looked at."""

CANCELLED = "it was cancelled"

Outcome = PassReport | DryRun | KeyHistory | LogDigest
Work = Callable[[PartitionLog, Callable[[RunningPass], None]], Awaitable[Outcome]]
"""Works on one log, and tells when it has begun."""


class State(enum.Enum):
    """Where a part of a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_end(self) -> bool:
        return self not in (State.WAITING, State.RUNNING)


@dataclass(slots=True)
class Part:
    """One partition's part of a job."""

    topic_partition: TopicPartition
    state: State = State.WAITING
    running: RunningPass | None = None
    """Its pass, once that has begun."""
    outcome: Outcome | None = None
    error: str | None = None
    task: asyncio.Task[None] | None = None
    """Waits for its turn, then for the end."""

    def begun(self, running: RunningPass) -> None:
        self.running, self.state = running, State.RUNNING

    def cancel(self) -> None:
        """Let it end soon; at once if it waits."""
        if self.running is not None:
            self.running.halt(CANCELLED)
        elif self.task is not None and not self.state.is_end:
            self.state, self.error = State.STOPPED, CANCELLED
            self.task.cancel()

    def stopped(self, reason: CleaningAborted) -> None:
        because = self.running.stopped_because if self.running else None
        self.state, self.error = State.STOPPED, because or str(reason)


@dataclass(slots=True)
class Job:
    """What was asked for in one request."""

    id: int
    kind: str
    parts: list[Part] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return all(part.state.is_end for part in self.parts)


class CompactionJobs:
    """The jobs of this broker since its start. On the event loop."""

    __slots__ = ("_jobs", "_next_id", "_tasks")

    def __init__(self) -> None:
        self._next_id = 1
        self._jobs: dict[int, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, job_id: int) -> Job | None:
        """A job; None if there never was one, or it ended long ago."""
        return self._jobs.get(job_id)

    def begin(self, kind: str, logs: Iterable[PartitionLog], work: Work) -> Job:
        """Begin a job that does `work` on each log."""
        job = Job(id=self._next_id, kind=kind)
        self._next_id += 1
        self._jobs[job.id] = job
        for log in logs:
            part = Part(log.topic_partition)
            job.parts.append(part)
            part.task = spawn(_do(part, log, work), "compaction job", among=self._tasks)
        self._forget_oldest()
        return job

    async def stop(self) -> None:
        """Wait for the end of all; to be called once the pool has stopped, which ends them."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _forget_oldest(self) -> None:
        finished = [job.id for job in self._jobs.values() if job.is_over]
        for job_id in finished[: max(len(finished) - FINISHED_KEPT, 0)]:
            del self._jobs[job_id]


async def _do(part: Part, log: PartitionLog, work: Work) -> None:
    try:
        part.outcome = await work(log, part.begun)
        part.state = State.DONE
    except CleaningAborted as reason:
        part.stopped(reason)
    except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told
        _log.info(
            "%s: what was asked for failed: %s", part.topic_partition, str(error) or repr(error)
        )
        part.state, part.error = State.FAILED, str(error) or repr(error)

"""Jobs that operators started, such as cleaning a topic now; they stay visible after they have ended.

    waiting -> running -> done        with a report, or with what a pass would do
                       -> failed      with a sentence
                       -> stopped     an operator or a shutdown stopped it, or its log changed

A job has one part for each partition. It runs to its end even if no client asks for its state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass, field

from cleaner.inspect.dry_run import DryRun
from cleaner.inspect.key_analysis import KeyAnalysis
from cleaner.inspect.key_search import KeyHistory
from cleaner.inspect.log_digest import LogDigest
from cleaner.inspect.policy_preview import PolicyPreview
from cleaner.pacing.meter import CleaningAborted
from cleaner.pool.runner import CANCELLED, RunningPass
from cleaner.rules.report import PassReport
from server.runtime.part_state import PartState
from server.runtime.tasks import spawn
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.admin.compaction_jobs")

FINISHED_MAX = 200
"""The number of finished jobs that are kept for clients to read."""

FINISHED_OF_KIND_MAX = {"keys": 10}
"""Fewer are kept of kinds with large results."""

Outcome = PassReport | DryRun | PolicyPreview | KeyHistory | LogDigest | KeyAnalysis
Work = Callable[[PartitionLog, Callable[[RunningPass], None]], Awaitable[Outcome]]
"""Does the job on one log; it calls the function with the pass when the pass has started."""


@dataclass(slots=True)
class Part:
    """One partition's part of a job."""

    topic_partition: TopicPartition
    state: PartState = PartState.WAITING
    running: RunningPass | None = None
    """Its pass, once that has started."""
    outcome: Outcome | None = None
    error: str | None = None
    task: asyncio.Task[None] | None = None
    """Waits for a free worker, then for the end of the pass."""

    def mark_started(self, running: RunningPass) -> None:
        self.running, self.state = running, PartState.RUNNING

    def cancel(self) -> None:
        """Stop it: a running pass ends soon, a waiting one at once."""
        if self.running is not None:
            self.running.halt(CANCELLED)
        elif self.task is not None and not self.state.is_end:
            self.state, self.error = PartState.STOPPED, CANCELLED
            self.task.cancel()

    def mark_stopped(self, reason: CleaningAborted) -> None:
        because = self.running.stopped_because if self.running else None
        self.state, self.error = PartState.STOPPED, because or str(reason)


@dataclass(slots=True)
class Job:
    """One request of an operator, with a part for each partition."""

    id: int
    kind: str
    parts: list[Part] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return all(part.state.is_end for part in self.parts)


@loop_thread
class CompactionJobs:
    """Starts jobs, and keeps those since the broker's start."""

    __slots__ = ("_jobs", "_next_id", "_tasks")

    def __init__(self) -> None:
        self._next_id = 1
        self._jobs: dict[int, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, job_id: int) -> Job | None:
        """Returns a job; None if there never was one, or it ended long ago."""
        return self._jobs.get(job_id)

    def cancel(self, partitions: Container[TopicPartition]) -> list[tuple[Job, Part]]:
        """Stop the parts of jobs over these partitions. Returns those that had not ended."""
        stopped = [
            (job, part)
            for job in self._jobs.values()
            for part in job.parts
            if part.topic_partition in partitions and not part.state.is_end
        ]
        for _, part in stopped:
            part.cancel()
        return stopped

    def begin(self, kind: str, logs: Iterable[PartitionLog], work: Work) -> Job:
        """Start a job that does `work` on each log."""
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
        """Wait until all jobs have ended. Call it after the pool has stopped, which ends them."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _forget_oldest(self) -> None:
        finished = [job for job in self._jobs.values() if job.is_over]
        surplus = finished[: max(len(finished) - FINISHED_MAX, 0)]
        for kind, count in FINISHED_OF_KIND_MAX.items():
            of_kind = [job for job in finished if job.kind == kind]
            surplus += of_kind[: max(len(of_kind) - count, 0)]
        for job in surplus:
            self._jobs.pop(job.id, None)


async def _do(part: Part, log: PartitionLog, work: Work) -> None:
    try:
        part.outcome = await work(log, part.mark_started)
        part.state = PartState.DONE
    except CleaningAborted as reason:
        part.mark_stopped(reason)
    except Exception as error:  # noqa: BLE001 - the client that started the job sees any failure
        _log.info("%s: job failed: %s", part.topic_partition, str(error) or repr(error))
        part.state, part.error = PartState.FAILED, str(error) or repr(error)

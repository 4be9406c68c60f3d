"""The comparisons that operators have started. Runs one partition at a time, over all jobs: its table is
what needs memory.

Jobs stay visible after they have ended, until others push them out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from cleaner.kernel.log_comparison import LogComparison
from protocol.wire.errors import ProtocolError
from server.client.broker_client import connected
from server.client.errors import ClientFailed
from server.replication.replication import LinkRefused, Replication, UnknownLink
from server.replication.requests import FetchBounds
from server.replication.verify.comparing import MirrorIsBehind, PartitionComparison
from server.replication.verify.cost import sizes_of
from server.replication.verify.job import Part, VerifyJob
from server.replication.verify.named_keys import keys_of
from server.replication.verify.sides import CannotRead, MirrorSide, SourceSide
from server.replication.verify.verdict import LISTED_MAX, Judged, Verdict, judge
from server.runtime.executors import Executor
from server.runtime.part_state import PartState
from server.runtime.tasks import report_failure, spawn
from storage.files.errors import StorageError
from storage.threads import loop_thread

_log = logging.getLogger("server.replication.verify")

FINISHED_MAX = 100
RUNNING_MAX = 100
"""Jobs that have not ended; more are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """What bounds a comparison."""

    bounds: FetchBounds
    memory_bytes: int
    decompressed_bytes_max: int


@loop_thread
class Verifications:
    """Starts comparisons, and keeps what they have found."""

    __slots__ = (
        "_jobs",
        "_next_id",
        "_one_at_a_time",
        "_replication",
        "_settings",
        "_tasks",
        "_thread",
    )

    def __init__(
        self, replication: Replication, settings: VerifySettings, *, thread: Executor
    ) -> None:
        """
        Args:
            thread: reads and compares.
        """
        # Constant after construction
        self._replication = replication
        self._settings = settings
        self._thread = thread
        self._one_at_a_time = asyncio.Lock()
        # State
        self._jobs: dict[int, VerifyJob] = {}
        self._next_id = 1
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, topic: str, *, wait_seconds: float) -> VerifyJob:
        """Start to compare a mirror with its source.

        Args:
            wait_seconds: how long each partition may take to get what the source has.

        Raises:
            UnknownLink: it is no mirror.
            LinkRefused: its link does not run, the source does not answer, or too many jobs run.
        """
        self._check_room()
        link, found = self._replication.sources_of(topic)
        sizes = await sizes_of(source for _, source in found)
        self._check_room()  # Others may have begun meanwhile.
        job = VerifyJob(
            id=self._next_id,
            link=link,
            topic=topic,
            address=", ".join(sorted({source.address for _, source in found})),
            cost_bytes=sum(sizes.values()) if len(sizes) == len(found) else None,
            parts=[Part(log=log, source=source) for log, source in found],
        )
        self._next_id += 1
        self._jobs[job.id] = job
        job.task = spawn(self._run(job, wait_seconds), "verification", among=self._tasks)
        self._forget_oldest()
        return job

    def get(self, topic: str, job_id: int | None) -> VerifyJob:
        """Returns a job of a topic. Raises UnknownLink."""
        job = None if job_id is None else self._jobs.get(job_id)
        if job is None or job.topic != topic:
            raise UnknownLink(
                f"there is no such comparison of {topic}: it ended long ago, or the broker has restarted"
            )
        return job

    def cancel(self, job: VerifyJob) -> None:
        """Stop a job."""
        if job.task is not None and not job.is_over:
            _stopped(job.parts, "it was cancelled")
            job.task.cancel()

    async def stop(self) -> None:
        """Stop all jobs."""
        for job in list(self._jobs.values()):
            self.cancel(job)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check_room(self) -> None:
        if sum(not job.is_over for job in self._jobs.values()) >= RUNNING_MAX:
            raise LinkRefused(f"{RUNNING_MAX} comparisons wait already: stop some, or wait")

    def _forget_oldest(self) -> None:
        over = [job.id for job in self._jobs.values() if job.is_over]
        for job_id in over[: max(len(over) - FINISHED_MAX, 0)]:
            del self._jobs[job_id]

    async def _run(self, job: VerifyJob, wait_seconds: float) -> None:
        for part in job.parts:
            async with self._one_at_a_time:
                await self._compare(part, wait_seconds)

    async def _compare(self, part: Part, wait_seconds: float) -> None:
        part.state = PartState.RUNNING
        try:
            part.judged = await self._judged(part, wait_seconds)
            part.state = PartState.DONE
        except MirrorIsBehind as behind:
            part.judged = Judged(verdict=Verdict.UNKNOWN, reason=str(behind))
            part.state = PartState.DONE
        except (CannotRead, ClientFailed, ProtocolError, StorageError, MemoryError) as error:
            part.state, part.error = PartState.FAILED, str(error)
        except Exception as error:  # noqa: BLE001 - the other partitions are still to be compared
            report_failure("verification", error)
            part.state = PartState.FAILED
            part.error = f"an unexpected error, which the log has: {error}"
        if part.judged is not None:
            _log.info("%s is %s to its source", part.log.topic_partition, part.judged.verdict)

    async def _judged(self, part: Part, wait_seconds: float) -> Judged:
        strategy = part.log.config.strategy
        if part.by_key and strategy.has_versions:
            # The table compares by offset: a record that has lost would count as a difference.
            reason = f"records are ranked by {strategy}: only last values by offset can be compared"
            return Judged(verdict=Verdict.UNKNOWN, reason=reason)
        size = self._settings.bounds.partition_max_bytes
        mirror = MirrorSide(part.log, self._thread, bytes_max=size)
        table = self._table(part)
        try:
            async with connected(part.source.address, part.source.access) as client:
                source = SourceSide(client, part.source, self._settings.bounds)
                comparison = PartitionComparison(
                    source,
                    mirror,
                    table,
                    by_key=part.by_key,
                    thread=self._thread,
                    wait_seconds=wait_seconds,
                    monotonic=time.monotonic,
                )
                part.progress = comparison.progress
                await comparison.run()
                part.keys = await keys_of(
                    part.progress.found.listed,
                    (source, mirror),
                    thread=self._thread,
                    decompressed_bytes_max=self._settings.decompressed_bytes_max,
                )
            # Also if that was after the last read: the verdict is about the log that is there now.
            mirror.check_is_one_log()
        finally:
            # In the thread: to give back so much memory takes milliseconds.
            await self._thread.run(table.close)
        kept_ms = (part.source.delete_retention_ms, part.log.config.delete_retention_ms)
        return judge(
            part.progress.found,
            by_key=part.by_key,
            slowest_part_ms=part.progress.slowest_part_ms,
            delete_retention_ms=min(kept_ms),
        )

    def _table(self, part: Part) -> LogComparison:
        return LogComparison(
            os.urandom(16),
            by_key=part.by_key,
            memory_bytes=self._settings.memory_bytes,
            listed_max=LISTED_MAX,
            decompressed_bytes_max=self._settings.decompressed_bytes_max,
        )


def _stopped(parts: Iterable[Part], reason: str) -> None:
    for part in parts:
        if not part.state.is_end:
            part.state, part.error = PartState.STOPPED, reason

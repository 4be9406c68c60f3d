"""The cleaner in the operator's hands: what the HTTP routes ask for, done with the broker's parts."""

from __future__ import annotations

import uuid

from cleaner.clock import Clock
from cleaner.explain import explain
from cleaner.log_digest import stable_end
from cleaner.paused import CleaningPaused
from cleaner.pool import CleanerPool
from cleaner.situation import Explanation, pinning_transactions, situation_of
from server.cleaning_leases import CleaningLeases
from server.compaction_jobs import CompactionJobs, Job
from server.compaction_json import Json, guard_json, status_json
from server.compaction_pauses import CompactionPauses
from server.executors import Executor
from server.latency_watch import LatencyWatch
from server.near_names import hint
from server.topic import Topic
from server.topics import Topics
from storage.log import PartitionLog

ROWS_MAX = 1000
"""Of the queue and of the last passes, at most so many are listed."""


class CompactionRefused(Exception):
    """What was asked for cannot be done; `status` is HTTP's, the message one sentence for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Compaction:
    """Steers the cleaner. On the event loop."""

    __slots__ = (
        "_administration",
        "_clock",
        "_guard",
        "jobs",
        "leases",
        "pauses",
        "pool",
        "remote_token",
        "topics",
    )

    def __init__(
        self,
        pool: CleanerPool,
        pauses: CompactionPauses,
        topics: Topics,
        guard: LatencyWatch,
        *,
        clock: Clock,
        administration: Executor,
    ) -> None:
        # Constant after construction
        self._clock = clock
        self._guard = guard
        self._administration = administration
        self.pool = pool
        self.pauses = pauses
        self.topics = topics
        self.jobs = CompactionJobs()
        self.leases: CleaningLeases | None = None
        """Who else may clean; None: nobody."""
        self.remote_token = ""
        """What they show; the broker's to set, together with `leases`."""

    async def stop(self) -> None:
        """Wait for the ends of jobs and leases; to be called once the pool has stopped."""
        await self.jobs.stop()
        if self.leases is not None:
            await self.leases.stop()

    def topic_of(self, name: str, partition: int | None = None) -> Topic:
        """A topic, which has this partition.

        Raises:
            CompactionRefused: there is none.
        """
        topic = self.topics.get(name)
        if topic is None:
            names = [each.name for each in self.topics.all()]
            raise CompactionRefused(404, f"there is no topic {name}{hint(name, names)}")
        count = len(topic.partitions)
        if partition is not None and not 0 <= partition < count:
            raise CompactionRefused(
                404, f"topic {name} has no partition {partition}: it has {count}, counted from 0"
            )
        return topic

    def logs_of(self, name: str, partition: int | None) -> list[PartitionLog]:
        """The logs of a topic, or of one partition of it.

        Raises:
            CompactionRefused: there is none, or it is offline.
        """
        partitions = self.topic_of(name, partition).partitions
        chosen = partitions if partition is None else (partitions[partition],)
        logs = [log for log in chosen if isinstance(log, PartitionLog)]
        for log in chosen:
            if log.offline_reason is not None:
                raise CompactionRefused(
                    409, f"{log.topic_partition} is offline: {log.offline_reason}"
                )
        return logs

    def clean_now(self, logs: list[PartitionLog], *, force: bool) -> Job:
        """Begin to clean logs whatever their dirty ratio.

        Raises:
            CompactionRefused: one of them is not compacted, or paused and not forced.
        """
        self._check(logs, force=force)
        clean_now = self.pool.clean_now
        return self.jobs.begin(
            "now", logs, lambda log, told: clean_now(log, despite_pause=force, on_start=told)
        )

    def plan(self, logs: list[PartitionLog]) -> Job:
        """Begin to find out what `clean_now` would do.

        Raises:
            CompactionRefused: one of them is not compacted.
        """
        self._check(logs, force=True)
        return self.jobs.begin(
            "plan", logs, lambda log, told: self.pool.dry_run(log, on_start=told)
        )

    def find_key(self, logs: list[PartitionLog], key: bytes) -> Job:
        """Begin to look for what is on disk of a key."""
        return self.jobs.begin(
            "find-key", logs, lambda log, told: self.pool.find_key(log, key, on_start=told)
        )

    def digest(self, logs: list[PartitionLog], end_offset: int | None) -> Job:
        """Begin to sum the last records of each key, below an offset or all that is stable.

        Raises:
            CompactionRefused: the offset is not in a log, or not stable.
        """
        for log in logs:
            try:
                stable_end(log.log_start_offset, log.last_stable_offset, end_offset)
            except ValueError as refused:
                raise CompactionRefused(409, f"{log.topic_partition}: {refused}") from refused
        return self.jobs.begin(
            "digest", logs, lambda log, told: self.pool.digest(log, end_offset, on_start=told)
        )

    async def status(self) -> Json:
        """What runs, waits, rests, is paused, and was done."""
        return status_json(
            self.pool.status(),
            await self.pool.queue(),
            self.paused(),
            guard_json(self._guard.state, is_enabled=self._guard.is_enabled),
            now=self._clock.monotonic(),
            rows_max=ROWS_MAX,
        )

    def paused(self) -> Json:
        """What is paused, by name, and since when."""
        named = []
        for topic in self.topics.all():
            numbers = (None, *range(len(topic.partitions)))
            for number in numbers:
                since_ms = self.pauses.since_ms(topic.id, number)
                if since_ms is not None:
                    named.append({"topic": topic.name, "partition": number, "since_ms": since_ms})
        return {"everything_since_ms": self.pauses.since_ms(None, None), "named": named}

    def _check(self, logs: list[PartitionLog], *, force: bool) -> None:
        for log in logs:
            try:
                self.pool.check_may_clean(log, despite_pause=force)
            except CleaningPaused as paused:
                raise CompactionRefused(
                    409, f"{paused}: resume it first, or force the pass"
                ) from paused
            except ValueError as refused:
                raise CompactionRefused(
                    409,
                    f"{refused}: set cleanup.policy=compact for topic {log.topic_partition.topic}",
                ) from refused

    async def explain(self, log: PartitionLog) -> Explanation:
        """Why a log is not being compacted. Raises StorageError."""
        transactions = await self._administration.run(pinning_transactions, log)
        return explain(
            situation_of(
                log,
                self.pool.assess(log),
                self.pool.status(),
                transactions,
                now_ms=self._clock.now_ms(),
                monotonic=self._clock.monotonic(),
            )
        )

    async def pause(self, name: str | None, partition: int | None) -> None:
        """Pause all cleaning, a topic's or a partition's. Raises CompactionRefused, StorageError."""
        await self.pauses.pause(self._topic_id(name, partition), partition)

    async def resume(self, name: str | None, partition: int | None) -> None:
        """End a pause and the narrower ones in it.

        Raises:
            CompactionRefused: there is no such topic or partition, or a wider pause holds it.
            StorageError: it cannot be written down.
        """
        topic_id = self._topic_id(name, partition)
        paused = self.pauses.paused
        wider = None
        if topic_id is not None and paused.everything:
            wider = "all cleaning is paused: kompakt compact resume"
        elif partition is not None and topic_id in paused.topics:
            wider = f"topic {name} is paused as a whole: kompakt compact resume {name}"
        if wider is not None:
            raise CompactionRefused(409, wider)
        await self.pauses.resume(topic_id, partition)

    def _topic_id(self, name: str | None, partition: int | None) -> uuid.UUID | None:
        return None if name is None else self.topic_of(name, partition).id

"""Controls the cleaner for operators: does what the HTTP routes ask for."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from cleaner.explain.explain import explain, policy_remedy
from cleaner.explain.situation import Explanation, pinning_transactions, situation_of
from cleaner.inspect.key_search import KeyHistory
from cleaner.inspect.log_digest import stable_end
from cleaner.pacing.clock import Clock
from cleaner.pacing.paused import CleaningPaused
from cleaner.pool.backlog import debts_of
from cleaner.pool.inspection import digest
from cleaner.pool.pool import CleanerPool
from cleaner.pool.runner import RunningPass
from cleaner.pool.status import Task
from cleaner.rules.tombstone_debt import total_debt
from server.admin.compaction_jobs import CompactionJobs, Job
from server.admin.compaction_json import (
    cancelled_json,
    debt_json,
    guard_json,
    partition_json,
    status_json,
)
from server.admin.compaction_pauses import CompactionPauses
from server.admin.compaction_undo import undone_json
from server.admin.latency_watch import LatencyWatch
from server.admin.leases import CleaningLeases
from server.admin.ledger_verifications import LedgerVerifications
from server.admin.refusals import UNKNOWN_TOPIC, CompactionRefused
from server.config.changes import ConfigChange, examined
from server.config.near_names import hint
from server.config.topic_changes import known_properties_of, topic_change
from server.durability.unkeyed_appends import fault_of_unkeyed_topic
from server.erasure.erasures import Erasures
from server.ledger.ledgers import CleaningLedgers
from server.runtime.executors import Executor
from server.runtime.sliced_json import Json
from server.runtime.turns import Pace, Turns
from server.topics.topic import Topic, TopicRefused
from server.topics.topics import Topics
from storage.files.errors import NoSpace, StorageError, UndoRefused
from storage.files.paths import topic_id_text
from storage.formats.compaction_config import UNKEYED_TOPIC
from storage.formats.log_config import LogConfig
from storage.log.cleaning import Undone
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

ROWS_MAX = 1000
"""At most this many entries of the queue, and of the last passes, are listed."""


@loop_thread
class Compaction:
    """Controls the cleaner on behalf of operators."""

    __slots__ = (
        "_administration",
        "_clock",
        "_guard",
        "_ledger_reads",
        "erasures",
        "jobs",
        "leases",
        "ledger_verifications",
        "ledgers",
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
        erasures: Erasures,
        *,
        clock: Clock,
        administration: Executor,
        ledgers: CleaningLedgers,
        ledger_reads: Executor,
        ledger_verifications: LedgerVerifications,
    ) -> None:
        # Constant after construction
        self._ledger_reads = ledger_reads
        self.ledgers = ledgers
        """The certificates of passes."""
        self.ledger_verifications = ledger_verifications
        self._clock = clock
        self._guard = guard
        self._administration = administration
        self.pool = pool
        self.pauses = pauses
        self.topics = topics
        self.erasures = erasures
        self.jobs = CompactionJobs()
        self.leases: CleaningLeases | None = None
        """The leases of other processes; None if remote cleaning is off."""
        self.remote_token = ""
        """The token that these processes must send; the broker sets it together with `leases`."""

    async def stop(self) -> None:
        """Wait until all jobs, leases and erasures have ended. Call it after the pool has stopped."""
        await self.ledger_verifications.stop()
        await self.jobs.stop()
        await self.erasures.stop()
        if self.leases is not None:
            await self.leases.stop()

    def topic_of(self, name: str, partition: int | None = None) -> Topic:
        """Returns the topic, after checking that it has this partition.

        Raises:
            CompactionRefused: there is no such topic or partition.
        """
        topic = self.topics.get(name)
        if topic is None:
            names = [each.name for each in self.topics.all()]
            text = f"there is no topic {name}{hint(name, names)}"
            raise CompactionRefused(404, text, code=UNKNOWN_TOPIC)
        count = len(topic.partitions)
        if partition is not None and not 0 <= partition < count:
            raise CompactionRefused(
                404, f"topic {name} has no partition {partition}: it has {count}, counted from 0"
            )
        return topic

    def logs_of(self, name: str, partition: int | None) -> list[PartitionLog]:
        """Returns the logs of a topic, or of one of its partitions.

        Raises:
            CompactionRefused: there is no such topic or partition, or a log is offline.
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

    def log_of(self, name: str, partition: int) -> PartitionLog | None:
        """Returns the log of a partition; None if it does not exist or is offline."""
        topic = self.topics.get(name)
        if topic is None or partition >= len(topic.partitions):
            return None
        log = topic.partitions[partition]
        return log if isinstance(log, PartitionLog) else None

    def clean_now(self, logs: list[PartitionLog], *, force: bool) -> Job:
        """Start a job that cleans logs regardless of their dirty ratio.

        Raises:
            CompactionRefused: a log is not compacted, or it is paused and `force` is not set.
        """
        self.check_may_clean(logs, force=force)
        clean_now = self.pool.clean_now
        return self.jobs.begin(
            "now",
            logs,
            lambda log, on_start: clean_now(log, despite_pause=force, on_start=on_start),
        )

    def cancel(self, logs: list[PartitionLog]) -> Json:
        """Stop what runs over logs or waits to, within a chunk. Returns what was stopped, as JSON."""
        partitions = {log.topic_partition for log in logs}
        running = self.pool.cancel(partitions)
        # The pool has stopped all others, but a search claims no log.
        others = [
            (job, part)
            for job, part in self.jobs.cancel(partitions)
            if part.running is None or part.running.task is Task.SEARCH
        ]
        return cancelled_json(running, others)

    def plan(self, logs: list[PartitionLog]) -> Job:
        """Start a job that finds out what `clean_now` would do.

        Raises:
            CompactionRefused: a log is not compacted.
        """
        self.check_may_clean(logs, force=True)
        return self.jobs.begin(
            "plan", logs, lambda log, on_start: self.pool.dry_run(log, on_start=on_start)
        )

    def check_topic_id(self, name: str, text: str | None) -> None:
        """Raise CompactionRefused if a client means a topic of this name with another id, of another
        cluster, or if there is no topic of this name."""
        topic_id = topic_id_text(self.topic_of(name).id)
        if text not in (None, topic_id):
            raise CompactionRefused(
                409, f"topic {name} has the id {topic_id} here, not {text}: it is another cluster's"
            )

    async def preview(
        self, name: str, partition: int | None, changes: Sequence[ConfigChange]
    ) -> Job:
        """Start a job that finds out what a change of a topic's settings would remove.

        Raises:
            CompactionRefused: there is no such topic or partition, or the change is not valid.
        """
        logs = self.logs_of(name, partition)
        known = known_properties_of(self.topics.get(name))
        found = await examined(changes, known, Pace(Turns()))
        altered: Topic | TopicRefused = (
            found
            if isinstance(found, TopicRefused)
            else await self.topics.alter(name, topic_change(name, found), validate_only=True)
        )
        if isinstance(altered, TopicRefused):
            raise CompactionRefused(409, altered.message)
        config = altered.config
        self._check_unkeyed_topic(name, self.topic_of(name).config, config)
        return self.jobs.begin(
            "preview", logs, lambda log, on_start: self.pool.preview(log, config, on_start=on_start)
        )

    def _check_unkeyed_topic(self, name: str, before: LogConfig, after: LogConfig) -> None:
        """Raise CompactionRefused if a change would be refused for the topic that takes records without
        a key. Settings that do not change are not looked at, as in a change."""
        target = after.compaction_unkeyed_topic
        chosen = after.compaction_unkeyed_records, target
        if not target or chosen == (
            before.compaction_unkeyed_records,
            before.compaction_unkeyed_topic,
        ):
            return
        fault = fault_of_unkeyed_topic(self.topics.get(target), target, name)
        if fault is not None:
            text = f"Invalid value {target[:100]!r} for configuration {UNKEYED_TOPIC}: {fault}"
            raise CompactionRefused(409, text)

    def find_key(self, logs: list[PartitionLog], key: bytes) -> Job:
        """Start a job that finds all records of a key on disk."""
        return self.jobs.begin(
            "find-key", logs, lambda log, on_start: self._find_key(log, key, on_start)
        )

    async def _find_key(
        self, log: PartitionLog, key: bytes, on_start: Callable[[RunningPass], None]
    ) -> KeyHistory:
        """Search for a key, and ask the ledger when older records of it went."""
        history = await self.pool.find_key(log, key, on_start=on_start)
        gone = await self._ledger_reads.run(self.ledgers.departures, log, history)
        return replace(history, departures=gone)

    def digest(self, logs: list[PartitionLog], end_offset: int | None) -> Job:
        """Start a job that computes a digest over the last record of each key.

        Args:
            end_offset: records from here on are ignored; None: the last stable offset.

        Raises:
            CompactionRefused: the offset is not in a log, or is not stable.
        """
        for log in logs:
            try:
                stable_end(log.log_start_offset, log.last_stable_offset, end_offset)
            except ValueError as refused:
                raise CompactionRefused(409, f"{log.topic_partition}: {refused}") from refused
        return self.jobs.begin(
            "digest",
            logs,
            lambda log, on_start: self.pool.inspect(log, digest(end_offset), on_start=on_start),
        )

    async def tombstones(self, name: str, partition: int | None) -> Json:
        """Returns the tombstones that passes have counted in a topic, and when they fall due, as JSON.

        Raises:
            CompactionRefused: there is no such topic or partition, or a log is offline.
        """
        topic, logs = self.topic_of(name, partition), self.logs_of(name, partition)
        debts = await self._administration.run(debts_of, logs)
        return {
            "topic": name,
            "topic_id": topic_id_text(topic.id),
            **debt_json(total_debt(debts)),
            "partitions": [
                {**partition_json(log.topic_partition), **debt_json(debt)}
                for log, debt in zip(logs, debts, strict=True)
            ],
        }

    async def status(self) -> Json:
        """Returns running, queued and last passes, the quarantine, the pauses and the tombstones of all
        topics, as JSON."""
        debts = await self._administration.run(debts_of, self.topics.logs())
        return {"tombstones": debt_json(total_debt(debts))} | status_json(
            self.pool.status(),
            await self.pool.queue(),
            self.paused(),
            guard_json(self._guard.state, is_enabled=self._guard.is_enabled),
            kept_bytes=await self._administration.run(self._kept_bytes),
            now=self._clock.monotonic(),
            rows_max=ROWS_MAX,
        )

    @any_thread
    def _kept_bytes(self) -> int:
        return sum(log.kept_bytes for log in self.topics.logs())

    def paused(self) -> Json:
        """Returns the pauses, by name, and since when each lasts, as JSON."""
        named = []
        for topic in self.topics.all():
            numbers = (None, *range(len(topic.partitions)))
            for number in numbers:
                since_ms = self.pauses.since_ms(topic.id, number)
                if since_ms is not None:
                    named.append({"topic": topic.name, "partition": number, "since_ms": since_ms})
        return {"everything_since_ms": self.pauses.since_ms(None, None), "named": named}

    def check_may_clean(self, logs: list[PartitionLog], *, force: bool) -> None:
        """Raise CompactionRefused if a log is not compacted, or is paused and `force` is not set."""
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
                    f"{refused}: {policy_remedy(log.topic_partition.topic, log.config)}",
                ) from refused

    async def undo(self, name: str, partition: int | None, number: int) -> Json:
        """Undo a pass, after pausing the cleaning of its topic: the cleaner would do the same again.

        Returns what was done, as JSON.

        Raises:
            CompactionRefused: there is no such partition, the pass cannot be undone, or the disk failed;
                nothing has changed, except perhaps the pause, which the message then names.
            StorageError: the pause cannot be made durable.
        """
        log, *others = self.logs_of(name, partition)
        if others:
            raise CompactionRefused(409, f"topic {name} has several partitions: name one of them")
        if (reason := log.undo_refusal(number)) is not None:
            text = f"pass {number} of {log.topic_partition} cannot be undone: {reason}"
            raise CompactionRefused(409, text)
        since = "" if self.pauses.since_ms(log.topic_id, None) is not None else " now"
        await self.pauses.pause(log.topic_id)
        try:
            undone = await self._administration.run(self._undo, log, number)
        except StorageError as error:
            status = 409 if isinstance(error, UndoRefused | NoSpace) else 500
            text = (
                f"{error}; the cleaning of {name} is paused{since}: kompakt compact resume {name}"
            )
            raise CompactionRefused(status, text) from error
        return undone_json(log, undone, self.paused())

    @any_thread
    def _undo(self, log: PartitionLog, number: int) -> Undone:
        undone = log.undo_pass(number)
        self.ledgers.undone(log, undone)
        return undone

    async def explain(self, logs: Sequence[PartitionLog]) -> list[Explanation]:
        """Returns why each log is not being compacted. Raises StorageError."""
        transactions = [await self._administration.run(pinning_transactions, log) for log in logs]
        # Once for all: it visits every log that the broker has swept.
        status = self.pool.status()
        explanations = []
        for log, pinning in zip(logs, transactions, strict=True):
            situation = situation_of(
                log,
                self.pool.assess(log),
                status,
                pinning,
                now_ms=self._clock.now_ms(),
                monotonic=self._clock.monotonic(),
            )
            explanations.append(explain(situation))
            await asyncio.sleep(0)
        return explanations

    async def pause(self, name: str | None, partition: int | None) -> None:
        """Pause all cleaning, or that of a topic or partition.

        Raises:
            CompactionRefused: there is no such topic or partition.
            StorageError: the change cannot be made durable.
        """
        await self.pauses.pause(self._topic_id(name, partition), partition)

    async def resume(self, name: str | None, partition: int | None) -> None:
        """End a pause and the narrower ones that it covers.

        Raises:
            CompactionRefused: there is no such topic or partition, or a wider pause covers it.
            StorageError: the change cannot be made durable.
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

"""Accepts requests to erase keys: finds where the keys are, and appends their tombstones.

    search -> append the tombstones -> durable -> the caller stores the erasures

Nothing but the tombstones has a key. If the broker stops before the erasures are stored, the tombstones
are without them and the client has no answer: it asks again (docs/design/erasure.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleaner.explain.explain import policy_remedy
from cleaner.inspect.key_traces import KeyTrace
from cleaner.kernel.kernel import siphash128
from cleaner.pool.pool import CleanerPool
from cleaner.rules.latest import VERSION
from cleaner.rules.text import count_text
from protocol.records.record import Headers
from protocol.records.record_batch import Record, build_batch
from protocol.wire.numbers import Offset
from server.durability.group_commit import GroupCommit
from server.erasure.erasure import ErasedPartition, Erasure, KeyClaim, new_id
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.topics.topic import INTERNAL_TOPICS, Topic
from server.topics.topics import Topics
from storage.batches.validate import Refused, ValidBatch, validate_at_once, validate_batch
from storage.files.errors import LogOffline
from storage.formats.compaction_strategy import Ranking
from storage.formats.key_sidecar import hash_key_check
from storage.log.log import PartitionLog
from storage.threads import loop_thread

KEYS_MAX = 100
"""So many keys may be in one request."""
SEARCHES_MAX = 3
"""How often the end of a log is searched again because records were appended meanwhile."""

NO_HEADERS: Headers = ()


class ErasureRefused(Exception):
    """A request that cannot be fulfilled: an HTTP status and one sentence for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search of a log has found keys."""

    traces: Mapping[bytes, KeyTrace]
    """By the keys' hashes."""
    end_offset: int


@loop_thread
class ErasureIntake:
    """Searches and appends. Stores nothing."""

    __slots__ = ("_clock", "_group_commit", "_pool", "_threads", "_topics", "_validation")

    def __init__(
        self,
        pool: CleanerPool,
        topics: Topics,
        group_commit: GroupCommit,
        clock: Clock,
        *,
        threads: Executor,
        validation: Executor,
    ) -> None:
        """
        Args:
            threads: hash keys slowly, and sync logs.
            validation: validate batches that take long.
        """
        self._pool = pool
        self._topics = topics
        self._group_commit = group_commit
        self._clock = clock
        self._threads = threads
        self._validation = validation

    async def accept(self, name: str, keys: Sequence[bytes], within_ms: int) -> list[Erasure]:
        """Append the tombstones of keys. Returns their erasures, which are durable in the logs only.

        Args:
            within_ms: from now to the deadline.

        Raises:
            ErasureRefused: the topic or a log does not allow it. Some tombstones may be appended.
            CleaningAborted: the broker is stopping, or a log was truncated, deleted or reconfigured.
            ProtocolError, StorageError: a log is damaged, or cannot be read or written.
        """
        requested_ms = self._clock.now_ms()
        keys = list(dict.fromkeys(keys))
        if not 0 < len(keys) <= KEYS_MAX:
            raise ErasureRefused(400, f"name from 1 to {KEYS_MAX} keys, not {len(keys)}")
        topic = self._topic_of(name)
        logs = topic.logs()
        claims = [await self._threads.run(KeyClaim.of, key) for key in keys]
        found = [await self._search(log, keys) for log in logs]
        durable: list[asyncio.Future[bool]] = []
        parts = [
            await self._append(topic, log, keys, where, durable)
            for log, where in zip(logs, found, strict=True)
        ]
        await self._make_durable(name, logs, durable)
        secrets = {log.identity.hash_key for log in logs}
        return [
            Erasure(
                id=new_id(),
                topic=name,
                topic_id=topic.id,
                requested_ms=requested_ms,
                deadline_ms=requested_ms + within_ms,
                claim=claim,
                hashes={
                    hash_key_check(each).hex(): siphash128(each, key).hex() for each in secrets
                },
                partitions=tuple(part[number] for part in parts),
            )
            for number, (key, claim) in enumerate(zip(keys, claims, strict=True))
        ]

    def _topic_of(self, name: str) -> Topic:
        """Returns a topic whose keys may be erased. Raises ErasureRefused."""
        topic = self._topics.get(name)
        if topic is None:
            raise ErasureRefused(404, f"there is no topic {name}")
        if name in INTERNAL_TOPICS:
            raise ErasureRefused(
                409,
                f"{name} is the broker's own topic: its keys go with the groups or transactions"
                " that they belong to",
            )
        config = topic.config
        if config.is_mirror:
            raise ErasureRefused(
                409,
                f"{name} is a mirror: erase the key at its source;"
                f" the tombstone comes from there by link {config.mirror_link}",
            )
        if not config.is_compacted:
            raise ErasureRefused(409, f"{name} is not compacted: {policy_remedy(name, config)}")
        for log in topic.partitions:
            if log.offline_reason is not None:
                raise ErasureRefused(409, f"{log.topic_partition} is offline: {log.offline_reason}")
        return topic

    # ---------------------------------------------------------------- search

    async def _search(self, log: PartitionLog, keys: Sequence[bytes]) -> Found:
        hashes = [siphash128(log.identity.hash_key, key) for key in keys]
        traces = await self._pool.trace_keys(log, hashes, trusts_sidecars=True)
        return Found(traces.traces, traces.end_offset)

    async def _search_end(self, log: PartitionLog, keys: Sequence[bytes], found: Found) -> Found:
        """Returns what was found, with the records that were appended since: if records have versions,
        the tombstone must outrank them as well."""
        hashes = [siphash128(log.identity.hash_key, key) for key in keys]
        for _ in range(SEARCHES_MAX):
            if log.log_end_offset == found.end_offset:
                break
            more = await self._pool.trace_keys(
                log, hashes, start_offset=Offset(found.end_offset), trusts_sidecars=True
            )
            traces = dict(found.traces)
            for key_hash, trace in more.traces.items():
                before = traces.get(key_hash)
                traces[key_hash] = trace if before is None else before.plus(trace)
            found = Found(traces, more.end_offset)
        return found

    # ---------------------------------------------------------------- tombstones

    async def _append(
        self,
        topic: Topic,
        log: PartitionLog,
        keys: Sequence[bytes],
        found: Found,
        durable: list[asyncio.Future[bool]],
    ) -> list[ErasedPartition]:
        """Append the tombstones of the keys that a log has, and roll. Returns its part of each key.

        Args:
            durable: gets a future for each append.
        """
        if log.config.strategy.has_versions:
            found = await self._search_end(log, keys, found)
        parts = []
        for key in keys:
            trace = found.traces.get(siphash128(log.identity.hash_key, key))
            if trace is None:
                parts.append(ErasedPartition(found.end_offset, False))
                continue
            batch = await self._tombstone_batch(log, key, trace)
            self._check_unchanged(topic, log)
            appended = log.appender.append_as_leader(batch, now_ms=self._clock.now_ms())
            if isinstance(appended, Refused):
                raise _unacceptable(log, appended)
            self._group_commit.appended(log)
            durable.append(self._group_commit.durable(log, appended.next_offset))
            parts.append(ErasedPartition(appended.base_offset, True))
        if any(part.has_tombstone for part in parts):
            # A segment's youngest record decides whether min.compaction.lag.ms protects it.
            log.roll(self._clock.now_ms())
        return parts

    async def _tombstone_batch(self, log: PartitionLog, key: bytes, trace: KeyTrace) -> ValidBatch:
        """Returns a tombstone, checked as one of a producer. Raises ErasureRefused."""
        now_ms = self._clock.now_ms()
        batch = memoryview(build_batch([_tombstone(log, key, trace, now_ms)]))
        rules = log.validation_rules(now_ms=now_ms)
        valid = validate_at_once(batch, rules)
        if valid is None:
            valid = await self._validation.run(validate_batch, batch, rules)
        if isinstance(valid, Refused):
            raise _unacceptable(log, valid)
        return valid

    def _check_unchanged(self, topic: Topic, log: PartitionLog) -> None:
        """Raise ErasureRefused if the topic was deleted or changed during the search."""
        now = self._topic_of(topic.name)
        if now.id != topic.id or now.partition(log.topic_partition.partition) is not log:
            raise ErasureRefused(409, f"{topic.name} was deleted and created again meanwhile")

    async def _make_durable(
        self, name: str, logs: Sequence[PartitionLog], durable: Sequence[asyncio.Future[bool]]
    ) -> None:
        """Wait until all that is in the logs is on the disk, also where acknowledged records are not:
        the offsets of an erasure must not get other records after a crash."""
        if not all([await each for each in durable]):
            raise LogOffline(name, "the tombstones could not be made durable")
        await self._threads.run(_sync_all, logs)


def _unacceptable(log: PartitionLog, refused: Refused) -> ErasureRefused:
    return ErasureRefused(
        409, f"{log.topic_partition} does not accept the tombstone: {refused.message}"
    )


def _sync_all(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.sync()


def _tombstone(log: PartitionLog, key: bytes, trace: KeyTrace, now_ms: int) -> Record:
    """Returns the tombstone of a key: of the highest version that a record of the key has. Pure."""
    timestamp, headers = now_ms, NO_HEADERS
    strategy = log.config.strategy
    if strategy.ranking is Ranking.TIMESTAMP:
        timestamp = max(now_ms, trace.highest_version)
    elif strategy.ranking is Ranking.HEADER:
        headers = ((strategy.header, VERSION.pack(trace.highest_version)),)
    return Record(offset=0, timestamp=timestamp, key=key, value=None, headers=headers)


def accepted_text(erasures: Sequence[Erasure]) -> str:
    """Returns what was accepted, for the log. It names no key."""
    partitions = sum(each.has_tombstone for erasure in erasures for each in erasure.partitions)
    return (
        f"{erasures[0].topic}: {count_text(len(erasures), 'erasure')} accepted,"
        f" {count_text(partitions, 'tombstone')} appended"
    )

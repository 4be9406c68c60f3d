"""Writes markers, which end a transaction in each of its partitions with a commit or an abort.

A marker is written like an acks=all produce. Writing one twice has no effect, so every uncertain write
is repeated. A deleted partition needs no marker. A partition whose disk has failed is retried, since it
may come back after a restart.

Source: Apache Kafka, TransactionMarkerChannelManager.scala,
TransactionMarkerRequestCompletionHandler.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, ProducerId
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import TransactionPartition
from server.durability.group_commit import GroupCommit
from server.runtime.turns import Pace, Turns
from server.topics.mirrors import refusal_on_mirror
from server.topics.topics import Topics
from storage.batches.validate import Refused
from storage.files.errors import StorageError
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.coordination.transactions")

RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.1, 10.0

ALREADY_ENDED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The log has seen a later epoch, so the transaction has already ended in that partition."""

NEEDS_NONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.POLICY_VIOLATION)
"""The partition was deleted, or is that of a mirror which was created under its name since: neither has
a record of the transaction."""


class TransactionEnded(Protocol):
    """Called for each marker in `__consumer_offsets` once it is durable."""

    async def __call__(self, partition: int, producer_id: int, *, is_commit: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The end of a producer's transaction."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int


@loop_thread
class Markers:
    """Writes markers."""

    __slots__ = ("_group_commit", "_now_ms", "_offsets_ended", "_topics", "_turns")

    def __init__(
        self,
        topics: Topics,
        group_commit: GroupCommit,
        *,
        now_ms: Callable[[], int],
        offsets_ended: TransactionEnded,
        turns: Turns,
    ) -> None:
        """Create a writer of markers.

        Args:
            now_ms: the clock for the markers' timestamps.
        """
        self._topics = topics
        self._group_commit = group_commit
        self._now_ms = now_ms
        self._offsets_ended = offsets_ended
        self._turns = turns

    async def write(self, marker: Marker, partitions: set[TransactionPartition]) -> None:
        """Write a marker into each partition; retry until all are durable, without a limit.

        Args:
            partitions: a partition is removed once it has the marker.
        """
        retry_s = RETRY_SECONDS_FIRST
        # One time for all, so that a snapshot of an earlier time has all of them or none.
        now_ms = self._now_ms()
        while await self._write_once(marker, partitions, now_ms):
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_SECONDS_MAX)

    async def _write_once(
        self, marker: Marker, unmarked: set[TransactionPartition], now_ms: int
    ) -> bool:
        """Try each partition once. Returns whether some are left."""
        writes = [(marker, partition) for partition in unmarked]
        async for (_, partition), error in self.write_all(writes, Pace(self._turns), now_ms):
            if error in ALREADY_ENDED:
                _log.warning("%s needs no marker of %s: %s", partition, marker, error.message)
            if not error or error in ALREADY_ENDED or error in NEEDS_NONE:
                unmarked.discard(partition)
        return bool(unmarked)

    async def write_all(
        self,
        writes: Iterable[tuple[Marker, TransactionPartition]],
        pace: Pace,
        now_ms: int | None = None,
    ) -> AsyncIterator[tuple[tuple[Marker, TransactionPartition], ErrorCode]]:
        """Write each marker into its partition. Yields the error code of each, NONE once it is durable.

        UNKNOWN_TOPIC_OR_PARTITION: the partition does not exist. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: the log has seen a later epoch. POLICY_VIOLATION: the topic is a
        mirror. KAFKA_STORAGE_ERROR: the disk failed.

        Args:
            now_ms: the timestamp of all of them; None for that of now.
        """
        now_ms = self._now_ms() if now_ms is None else now_ms
        begun = [(each, await self._append(*each, now_ms)) async for each in pace.paced(writes)]
        async for (marker, partition), outcome in pace.paced(begun):
            if isinstance(outcome, ErrorCode):
                yield (marker, partition), outcome
            else:
                yield (marker, partition), await self._await_durable(marker, partition, outcome)

    async def _append(
        self, marker: Marker, partition: TransactionPartition, now_ms: int
    ) -> ErrorCode | asyncio.Future[bool]:
        """Append a marker. The future resolves to whether it became durable."""
        log = self._log_of(partition)
        if isinstance(log, ErrorCode):
            return log
        mirror = refusal_on_mirror(ApiKey.WRITE_TXN_MARKERS, partition.topic, log.config)
        if mirror is not None:
            return mirror.error_code
        try:
            if not log.new_files.are_made:
                await self._topics.make_files(log)
            appended = log.appender.append_marker(
                ProducerId(marker.producer.id),
                Epoch(marker.producer.epoch),
                is_commit=marker.is_commit,
                coordinator_epoch=Epoch(marker.coordinator_epoch),
                now_ms=now_ms,
            )
        except StorageError as error:
            _log.warning("%s: could not write a marker: %s", log.topic_partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(appended, Refused):
            return appended.error_code
        self._group_commit.appended(log)
        return self._group_commit.durable(log, appended.next_offset)

    async def _await_durable(
        self, marker: Marker, partition: TransactionPartition, is_durable: asyncio.Future[bool]
    ) -> ErrorCode:
        if not await is_durable:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.topic == OFFSETS_TOPIC:
            await self._offsets_ended(
                partition.partition, marker.producer.id, is_commit=marker.is_commit
            )
        return ErrorCode.NONE

    def _log_of(self, partition: TransactionPartition) -> PartitionLog | ErrorCode:
        topic = self._topics.get(partition.topic)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic.partition(partition.partition)

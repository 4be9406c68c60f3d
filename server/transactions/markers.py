"""Markers: what tells each partition of a transaction that it is over, and how.

A marker is written like an acks=all produce. One that is written twice changes nothing, so whatever
is uncertain is written again. A partition that is gone needs none; one whose disk has failed is tried
again, in case it comes back with another start.

Source: Apache Kafka, TransactionMarkerChannelManager.scala,
TransactionMarkerRequestCompletionHandler.scala.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from protocol.error_codes import ErrorCode
from server.coordinator_topic import OFFSETS_TOPIC
from server.group_commit import GroupCommit
from server.producer import Producer
from server.topics import Topics
from server.transactions.metadata import TransactionPartition
from server.turns import Pace, Turns
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.validate import Refused

_log = logging.getLogger("server.transactions")

RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.1, 10.0

OVER = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""A later epoch has written there: the transaction has ended in that partition."""


class TransactionEnded(Protocol):
    """Is told of each marker in `__consumer_offsets` once it is durable."""

    async def __call__(self, partition: int, producer_id: int, *, is_commit: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How a producer's transaction ended."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int


class Markers:
    """Writes markers. Lives on the event loop."""

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
        """
        Args:
            now_ms: the time of the markers.
        """
        self._topics = topics
        self._group_commit = group_commit
        self._now_ms = now_ms
        self._offsets_ended = offsets_ended
        self._turns = turns

    async def write(self, marker: Marker, partitions: set[TransactionPartition]) -> None:
        """Write a marker into each partition; returns when all are durable, however long that is.

        Args:
            partitions: those that have it are taken out.
        """
        patience_s = RETRY_SECONDS_FIRST
        while await self._write_once(marker, partitions):
            await asyncio.sleep(patience_s)
            patience_s = min(2 * patience_s, RETRY_SECONDS_MAX)

    async def _write_once(self, marker: Marker, unmarked: set[TransactionPartition]) -> bool:
        """Try each partition once; returns whether some are left."""
        writes = [(marker, partition) for partition in unmarked]
        async for (_, partition), error in self.write_all(writes, Pace(self._turns)):
            if error in OVER:
                _log.warning("%s needs no marker of %s: %s", partition, marker, error.message)
            if not error or error in OVER or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # What is gone needs no marker.
                unmarked.discard(partition)
        return bool(unmarked)

    async def write_all(
        self, writes: Iterable[tuple[Marker, TransactionPartition]], pace: Pace
    ) -> AsyncIterator[tuple[tuple[Marker, TransactionPartition], ErrorCode]]:
        """Write each marker into its partition; tells what became of it, NONE once it is durable.

        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: the log knows a later epoch. KAFKA_STORAGE_ERROR: the disk.
        """
        begun = [(each, self._begin(*each)) async for each in pace.paced(writes)]
        async for (marker, partition), outcome in pace.paced(begun):
            if isinstance(outcome, ErrorCode):
                yield (marker, partition), outcome
            else:
                yield (marker, partition), await self._ended(marker, partition, outcome)

    def _begin(
        self, marker: Marker, partition: TransactionPartition
    ) -> ErrorCode | asyncio.Future[bool]:
        """Append a marker now; the future tells whether it is durable."""
        log = self._log_of(partition)
        if isinstance(log, ErrorCode):
            return log
        try:
            appended = log.append_marker(
                marker.producer.id,
                marker.producer.epoch,
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                now_ms=self._now_ms(),
            )
        except StorageError as error:
            _log.warning("%s: a marker could not be written: %s", log.topic_partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(appended, Refused):
            return appended.error_code
        self._group_commit.appended(log)
        return self._group_commit.durable(log, appended.next_offset)

    async def _ended(
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

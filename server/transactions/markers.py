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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.error_codes import ErrorCode
from server.coordinator_topic import OFFSETS_TOPIC
from server.group_commit import GroupCommit
from server.producer import Producer
from server.topics import Topics
from server.transactions.metadata import TransactionPartition
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

    __slots__ = ("_group_commit", "_now_ms", "_offsets_ended", "_topics")

    def __init__(
        self,
        topics: Topics,
        group_commit: GroupCommit,
        *,
        now_ms: Callable[[], int],
        offsets_ended: TransactionEnded,
    ) -> None:
        """
        Args:
            now_ms: the time of the markers.
        """
        self._topics = topics
        self._group_commit = group_commit
        self._now_ms = now_ms
        self._offsets_ended = offsets_ended

    async def write(self, marker: Marker, partitions: set[TransactionPartition]) -> None:
        """Write a marker into each partition; returns when all are durable, however long that is.

        Args:
            partitions: those that have it are taken out.
        """
        await asyncio.gather(
            *(self._write(marker, partition, partitions) for partition in tuple(partitions))
        )

    async def _write(
        self,
        marker: Marker,
        partition: TransactionPartition,
        unmarked: set[TransactionPartition],
    ) -> None:
        """Until it is there."""
        patience_s = RETRY_SECONDS_FIRST
        while error := await self.write_one(marker, partition):
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                break  # What is gone needs no marker.
            if error in OVER:
                _log.warning("%s needs no marker of %s: %s", partition, marker, error.message)
                break
            await asyncio.sleep(patience_s)
            patience_s = min(2 * patience_s, RETRY_SECONDS_MAX)
        unmarked.discard(partition)

    async def write_one(self, marker: Marker, partition: TransactionPartition) -> ErrorCode:
        """Write a marker into one partition; NONE once it is durable.

        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition. INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED: the log knows a later epoch. KAFKA_STORAGE_ERROR: the disk.
        """
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
        if not await self._group_commit.durable(log, appended.next_offset):
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

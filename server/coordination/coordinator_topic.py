"""A compacted topic that stores a coordinator's state: of groups, or of transactions.

The topic is created at its first use. The id of a group, or a transactional id, determines the
partition of its records for ever; so the partition count is read once and never changes. The records of
one step form one batch, so that a crash keeps all of them or none. A batch is appended like a client's
acks=all: it is in the log when `append` returns, in the order of the calls, and durable when the
returned awaitable resolves.

A worker thread loads a partition in small pieces, so that the event loop gets the interpreter in
between (`state_loading.py`). The cleaner bounds the load time, and so do checkpoints (`checkpoints.py`).

Source: Apache Kafka, GroupCoordinatorService.java `partitionFor`, `groupMetadataTopicConfigs`;
TransactionStateManager.scala `partitionFor`, `transactionTopicConfigs`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cleaner.rules.text import count_text
from protocol.internal_topics.coordinator_records import (
    CoordinatorRecord,
    UnknownRecord,
    UnknownRecordType,
    write_key,
    write_value,
)
from protocol.records.batch_header import HEADER, read_header
from protocol.records.record import write_record
from protocol.records.record_batch import Record, build_batch_around
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import DecodeError, EncodeError
from server.coordination.checkpoints import TopicCheckpoints
from server.coordination.producer import NO_PRODUCER, Producer
from server.durability.group_commit import GroupCommit
from server.runtime.executors import Executor
from server.runtime.turns import Pace
from server.topics.topic import TopicRefused
from server.topics.topics import Topics
from storage.batches.validate import ValidBatch
from storage.files.errors import LogOffline, StorageError
from storage.log.appender import Appended
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.coordination.coordinator_topic")

T = TypeVar("T")

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"


class Clock(Protocol):
    """The clock for record timestamps."""

    def now_ms(self) -> int: ...


class RecordsTooLarge(StorageError):
    """A batch would exceed the topic's size limit; nothing was written."""


class ProducerRefused(StorageError):
    """The log refuses a batch of a producer's transaction; nothing was written."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


@loop_thread
class CoordinatorTopic:
    """The topic as the coordinator writes and reads it."""

    __slots__ = (
        "_clock",
        "_group_commit",
        "_overrides",
        "_partitions_count",
        "_topics",
        "_wanted_partitions_count",
        "checkpoints",
        "loading",
        "name",
    )

    def __init__(
        self,
        name: str,
        topics: Topics,
        group_commit: GroupCommit,
        clock: Clock,
        *,
        partitions_count: int,
        segment_bytes: int,
        loading: Executor,
    ) -> None:
        """Look up the topic, which may not exist yet.

        Args:
            partitions_count: for the topic's creation.
            segment_bytes: for the topic's creation; small, so that it is compacted soon and loads fast.
            loading: the threads that load partitions.
        """
        # Constant after construction
        self.name = name
        self.loading = loading
        self.checkpoints = TopicCheckpoints(has_commits=name == OFFSETS_TOPIC)
        """What is known of the checkpoints of its partitions."""
        self._topics = topics
        self._group_commit = group_commit
        self._clock = clock
        self._wanted_partitions_count = partitions_count
        self._overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
        }
        # State: the count of the existing topic; it never changes once it is known.
        topic = topics.get(self.name)
        self._partitions_count = 0 if topic is None else len(topic.partitions)

    @property
    @any_thread
    def partitions_count(self) -> int:
        """The topic's partition count; 0 until the topic exists."""
        return self._partitions_count

    def partition_of(self, coordinated_id: str) -> int:
        """Returns the partition for the records of this id. Call `ensure` first."""
        return java_abs(java_hash(coordinated_id)) % self._partitions_count

    async def ensure(self) -> None:
        """Create the topic and its files if it does not exist.

        Raises:
            StorageError: it cannot be created now.
        """
        if self._partitions_count:
            return
        made = await self._topics.create(
            self.name, partitions_count=self._wanted_partitions_count, overrides=self._overrides
        )
        # If another task has created the topic in between, that one is used.
        topic = self._topics.get(self.name)
        if topic is None:
            assert isinstance(made, TopicRefused)
            raise StorageError(f"cannot create {self.name}: {made.message}")
        # Else the first append to each partition would create its files on the event loop.
        await self._topics.make_files(*topic.logs())
        self._partitions_count = len(topic.partitions)

    @any_thread
    def log_of(self, partition: int) -> PartitionLog:
        """Returns the log of a partition.

        Raises:
            LogOffline: the partition is not served.
        """
        topic = self._topics.get(self.name)
        if topic is None:
            raise LogOffline(f"{self.name}-{partition}", "the topic does not exist")
        log = topic.partition(partition)
        if isinstance(log, ErrorCode):
            raise LogOffline(f"{self.name}-{partition}", log.message)
        return log

    def append(self, partition: int, records: Sequence[CoordinatorRecord]) -> Awaitable[int]:
        """Append one batch. The result resolves with the first record's offset when the batch is
        durable.

        Raises:
            RecordsTooLarge: when awaited; nothing was written.
            StorageError: when awaited; the records may reappear after a restart.
        """
        try:
            return self.append_in_transaction(partition, records, NO_PRODUCER)[1]
        except StorageError as error:
            return _failed_future(error)

    def append_in_transaction(
        self, partition: int, records: Sequence[CoordinatorRecord], producer: Producer
    ) -> tuple[int, Awaitable[int]]:
        """Append one batch in a producer's open transaction. Also returns the first offset at once.

        Raises:
            ProducerRefused: the producer is fenced; nothing was written.
            RecordsTooLarge: nothing was written.
            StorageError: from the call, nothing was written; when awaited, the records may reappear
                after a restart.
        """
        batch = Preparing(self, partition, producer)
        for record in records:
            batch.add(record)
        return self.append_batch(batch.prepared())

    async def prepare(
        self,
        partition: int,
        records: Iterable[CoordinatorRecord],
        pace: Pace,
        producer: Producer = NO_PRODUCER,
    ) -> PreparedBatch:
        """Encode any number of records for `append_batch`, in slices.

        Raises:
            RecordsTooLarge: they exceed the limit for a batch.
            LogOffline: the partition is not served.
        """
        batch = Preparing(self, partition, producer)
        async for record in pace.paced(records):
            batch.add(record)
        return batch.prepared()

    def append_batch(self, batch: PreparedBatch) -> tuple[int, Awaitable[int]]:
        """Append a prepared batch at once. Returns and raises like `append_in_transaction`."""
        log = self.log_of(batch.partition)
        valid = ValidBatch(read_header(batch.data), batch.data)
        appended = log.appender.append_as_leader(valid, now_ms=self._clock.now_ms())
        if not isinstance(appended, Appended):
            raise ProducerRefused(appended.error_code, appended.message)
        self._group_commit.appended(log)
        # GroupCommit requires this call before the next await.
        is_durable = self._group_commit.durable(log, appended.next_offset)
        return appended.base_offset, _when_durable(log, is_durable, appended.base_offset)

    async def settle(self, partition: int) -> PartitionLog:
        """Wait until all that was appended to a partition is durable, so that it may be read.

        Creates its files if a crash came between the creation of the topic and theirs.

        Raises:
            StorageError: the partition is not served, or the data cannot become durable.
        """
        log = self.log_of(partition)
        if not log.new_files.are_made:
            await self._topics.make_files(log)
        end_offset = log.log_end_offset
        if end_offset > log.high_watermark:
            await _when_durable(log, self._group_commit.durable(log, end_offset), end_offset)
        return log

    def now_ms(self) -> int:
        """Returns the current time for record timestamps."""
        return self._clock.now_ms()


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Encoded records of one partition."""

    partition: int
    data: memoryview


class Preparing:
    """Builds a batch record by record."""

    __slots__ = ("_bytes_max", "_count", "_encoded", "_partition", "_producer", "_timestamp")

    def __init__(self, topic: CoordinatorTopic, partition: int, producer: Producer) -> None:
        """Start a batch for a partition. Raises LogOffline."""
        self._partition = partition
        self._producer = producer
        self._bytes_max = topic.log_of(partition).config.max_message_bytes
        self._timestamp = topic.now_ms()
        self._encoded = bytearray()
        self._count = 0

    def add(self, record: CoordinatorRecord) -> None:
        """Encode one more record. Raises RecordsTooLarge."""
        if record.value is not None:
            # To encode payloads that do not fit would take long.
            self._check(HEADER.size + len(self._encoded) + record.value.payload_bytes)
        try:
            key = write_key(record.key)
            value = None if record.value is None else write_value(record.value)
        except EncodeError as error:
            # Flexible request versions can carry longer strings than a record can.
            raise RecordsTooLarge(str(error)) from error
        plain = Record(offset=self._count, timestamp=self._timestamp, key=key, value=value)
        write_record(self._encoded, plain, base_offset=0, base_timestamp=self._timestamp)
        self._count += 1
        self._check(HEADER.size + len(self._encoded))

    def prepared(self) -> PreparedBatch:
        """Returns the finished batch."""
        data = build_batch_around(
            self._encoded,
            record_count=self._count,
            timestamp=self._timestamp,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            is_transactional=self._producer is not NO_PRODUCER,
        )
        return PreparedBatch(self._partition, memoryview(data))

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            records, needed = count_text(self._count, "record"), count_text(size, "byte")
            raise RecordsTooLarge(f"{records} would need {needed} or more")


def _failed_future(error: StorageError) -> Awaitable[int]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def _when_durable(log: PartitionLog, is_durable: Awaitable[bool], offset: int) -> int:
    if not await is_durable:
        raise LogOffline(str(log.topic_partition), log.offline_reason or "the topic was deleted")
    return offset


def decode_values(
    log: PartitionLog,
    values: Mapping[bytes, bytes],
    read: Callable[[bytes, bytes], T],
    *,
    unreadable_count: int,
) -> tuple[list[T], int]:
    """Decode the last value of each key. Returns the decoded values and the number of unreadable
    records.

    Unreadable records stay in the log; they are counted and logged.

    Args:
        unreadable_count: unreadable records found so far.

    Raises:
        UnknownRecord: a *value* was written by a later release. The partition is not served then,
            so that no older state replaces that value.
    """
    found: list[T] = []
    for key, value in values.items():
        try:
            found.append(read(key, value))
        except UnknownRecordType:
            unreadable_count += 1
        except UnknownRecord:
            raise
        except DecodeError:
            unreadable_count += 1
    if unreadable_count:
        _log.warning(
            "%s: ignored %s that this release cannot read",
            log.topic_partition,
            count_text(unreadable_count, "record"),
        )
    return found, unreadable_count


def java_hash(text: str) -> int:
    """Returns Java's String.hashCode."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def java_abs(value: int) -> int:
    """Returns Kafka's Utils.abs: 0 for the number that has no positive counterpart."""
    return 0 if value == -(1 << 31) else abs(value)

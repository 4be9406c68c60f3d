"""A compacted topic that keeps what a coordinator knows: of groups, or of transactions.

It is made at its first use. The records of a group, or of a transactional id, are in one partition,
which its id decides, for ever; so the number of partitions is taken once and does not change. What
a step causes is one batch, so that a crash leaves all of it or nothing. It is appended like a
client's acks=all: in the log when `append` returns, in the order of the calls, and durable when what
it returns has a result.

A partition is read back by a worker thread, small piece by small piece, so that the loop has the
interpreter in between. That takes as long as the partition is large, which our cleaner bounds.

Source: Apache Kafka, GroupCoordinatorService.java `partitionFor`, `groupMetadataTopicConfigs`;
TransactionStateManager.scala `partitionFor`, `transactionTopicConfigs`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cleaner.text import count_text
from protocol.coordinator_records import (
    CoordinatorRecord,
    UnknownRecord,
    UnknownRecordType,
    write_key,
    write_value,
)
from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError, EncodeError
from protocol.record import write_record
from protocol.record_batch import HEADER, Record, build_batch_around, read_header
from server.executors import Executor
from server.group_commit import GroupCommit
from server.producer import NO_PRODUCER, Producer
from server.topic import TopicRefused
from server.topics import Topics
from server.turns import Pace
from storage.errors import LogOffline, StorageError
from storage.log import Appended, PartitionLog
from storage.reader import Isolation
from storage.validate import ValidBatch

_log = logging.getLogger("server.coordinator_topic")

T = TypeVar("T")

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"

PIECE_BYTES = 256 << 10
"""Of a log that is read back; whoever takes a piece holds the interpreter for about a millisecond."""


class Clock(Protocol):
    """Tells the time of records."""

    def now_ms(self) -> int: ...


class LoadFailed(StorageError):
    """A partition cannot be served, because of what stands in it, or cannot be read."""


class RecordsTooLarge(StorageError):
    """What was to be written in one batch is more than the topic takes in one; nothing was."""


class ProducerRefused(StorageError):
    """The log refuses a batch of a producer's transaction; nothing was written."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class CoordinatorTopic:
    """The topic as the coordinator writes and reads it. Lives on the event loop."""

    __slots__ = (
        "_clock",
        "_group_commit",
        "_overrides",
        "_partitions_count",
        "_topics",
        "_wanted_partitions_count",
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
        """Find the topic, which may not exist yet.

        Args:
            partitions_count: of the topic, where it does not exist yet.
            segment_bytes: the same; small, so that it is compacted soon and loads fast.
            loading: the threads that read partitions back.
        """
        # Constant after construction
        self.name = name
        self.loading = loading
        self._topics = topics
        self._group_commit = group_commit
        self._clock = clock
        self._wanted_partitions_count = partitions_count
        self._overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
        }
        # State: the topic's, once it is known; it does not change from then on.
        topic = topics.get(self.name)
        self._partitions_count = 0 if topic is None else len(topic.partitions)

    @property
    def partitions_count(self) -> int:
        """0 as long as nothing was ever written."""
        return self._partitions_count

    def partition_of(self, coordinated_id: str) -> int:
        """The partition that the records of this id are in; `ensure` comes first."""
        return java_abs(java_hash(coordinated_id)) % self._partitions_count

    async def ensure(self) -> None:
        """Make the topic, unless it is there.

        Raises:
            StorageError: it cannot be made now.
        """
        if self._partitions_count:
            return
        made = await self._topics.create(
            self.name, partitions_count=self._wanted_partitions_count, overrides=self._overrides
        )
        # Where somebody else was faster, their topic is as good.
        topic = self._topics.get(self.name)
        if topic is None:
            assert isinstance(made, TopicRefused)
            raise StorageError(f"{self.name} cannot be made: {made.message}")
        self._partitions_count = len(topic.partitions)

    def log_of(self, partition: int) -> PartitionLog:
        """The log of one partition.

        Raises:
            LogOffline: it is not served.
        """
        topic = self._topics.get(self.name)
        if topic is None:
            raise LogOffline(f"{self.name}-{partition}", "the topic does not exist")
        log = topic.partition(partition)
        if isinstance(log, ErrorCode):
            raise LogOffline(f"{self.name}-{partition}", log.message)
        return log

    def append(self, partition: int, records: Sequence[CoordinatorRecord]) -> Awaitable[int]:
        """Append one batch; what is returned resolves when it is durable.

        It resolves with the offset of the first record, and raises whatever goes wrong.

        Raises:
            RecordsTooLarge: when awaited; nothing was written.
            StorageError: when awaited; what was written may come back after a restart.
        """
        try:
            return self.append_in_transaction(partition, records, NO_PRODUCER)[1]
        except StorageError as error:
            return _failed(error)

    def append_in_transaction(
        self, partition: int, records: Sequence[CoordinatorRecord], producer: Producer
    ) -> tuple[int, Awaitable[int]]:
        """The same in a producer's transaction, which has begun. Returns the offset at once, too.

        Raises:
            ProducerRefused: nothing was written: the producer is fenced.
            RecordsTooLarge: nothing was written.
            StorageError: at the call nothing was written; awaited, it may come back after a restart.
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
        """Encode what `append_batch` shall append, however many records that is.

        Raises:
            RecordsTooLarge: it is more than a batch may have.
            LogOffline: the partition is not served.
        """
        batch = Preparing(self, partition, producer)
        async for record in pace.paced(records):
            batch.add(record)
        return batch.prepared()

    def append_batch(self, batch: PreparedBatch) -> tuple[int, Awaitable[int]]:
        """Append what was prepared, at once. Returns and raises as `append_in_transaction`."""
        log = self.log_of(batch.partition)
        valid = ValidBatch(read_header(batch.data), batch.data)
        appended = log.append_as_leader(valid, now_ms=self._clock.now_ms())
        if not isinstance(appended, Appended):
            raise ProducerRefused(appended.error_code, appended.message)
        self._group_commit.appended(log)
        # Asked before anything is awaited, as GroupCommit wants it.
        is_durable = self._group_commit.durable(log, appended.next_offset)
        return appended.base_offset, _when_durable(log, is_durable, appended.base_offset)

    async def settle(self, partition: int) -> PartitionLog:
        """Wait until all that was appended to a partition is durable, so that it may be read.

        Raises:
            StorageError: it is not served, or never will be durable.
        """
        log = self.log_of(partition)
        end_offset = log.log_end_offset
        if end_offset > log.high_watermark:
            await _when_durable(log, self._group_commit.durable(log, end_offset), end_offset)
        return log

    def now_ms(self) -> int:
        """The time of records."""
        return self._clock.now_ms()


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Records of one partition, encoded."""

    partition: int
    data: memoryview


class Preparing:
    """A batch that takes one record after the other."""

    __slots__ = ("_bytes_max", "_count", "_encoded", "_partition", "_producer", "_timestamp")

    def __init__(self, topic: CoordinatorTopic, partition: int, producer: Producer) -> None:
        """Begin a batch for a partition. Raises LogOffline."""
        self._partition = partition
        self._producer = producer
        self._bytes_max = topic.log_of(partition).config.max_message_bytes
        self._timestamp = topic.now_ms()
        self._encoded = bytearray()
        self._count = 0

    def add(self, record: CoordinatorRecord) -> None:
        """Encode one more record. Raises RecordsTooLarge."""
        try:
            key = write_key(record.key)
            value = None if record.value is None else write_value(record.value)
        except EncodeError as error:
            # A name that the flexible versions of a request can carry, and a record cannot.
            raise RecordsTooLarge(str(error)) from error
        plain = Record(offset=self._count, timestamp=self._timestamp, key=key, value=value)
        write_record(self._encoded, plain, base_offset=0, base_timestamp=self._timestamp)
        self._count += 1
        self._check(HEADER.size + len(self._encoded))

    def prepared(self) -> PreparedBatch:
        """The batch."""
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
            records, taken = count_text(self._count, "record"), count_text(size, "byte")
            raise RecordsTooLarge(f"{records} would take {taken} or more")


def _failed(error: StorageError) -> Awaitable[int]:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def _when_durable(log: PartitionLog, is_durable: Awaitable[bool], offset: int) -> int:
    if not await is_durable:
        raise LogOffline(str(log.topic_partition), log.offline_reason or "the topic was deleted")
    return offset


def feed_log(log: PartitionLog, end_offset: int, feed: Callable[[bytes], int]) -> None:
    """Read a log from its start up to `end_offset`, in pieces of whole batches. Blocks.

    Args:
        feed: takes a piece; returns the offset behind its last batch.

    Raises:
        StorageError: it cannot be read.
    """
    offset = log.log_start_offset
    while offset < end_offset:
        read = log.read(
            offset,
            max_bytes=PIECE_BYTES,
            whole_first_batch=True,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        if isinstance(read, ErrorCode):
            raise LoadFailed(f"{log.topic_partition}: offset {offset}: {read.message}")
        try:
            pieces = [region.read_bytes() for region in read.regions]
        finally:
            read.release()
        if not pieces:
            return  # Only batches without records are left.
        for piece in pieces:
            offset = feed(piece)


def readable(
    log: PartitionLog,
    values: Mapping[bytes, bytes],
    read: Callable[[bytes, bytes], T],
    *,
    unreadable_count: int,
) -> tuple[list[T], int]:
    """What this release reads of the last value of each key; how many records it cannot read, in all.

    Those are left where they are, counted and said.

    Args:
        unreadable_count: those that were met before.

    Raises:
        UnknownRecord: a *value* of a later release: what it says must not be replaced by what is
            older, so the partition is not served.
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
            "%s: left %s alone that this release cannot read",
            log.topic_partition,
            count_text(unreadable_count, "record"),
        )
    return found, unreadable_count


def java_hash(text: str) -> int:
    """Java's String.hashCode."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def java_abs(value: int) -> int:
    """Kafka's Utils.abs: 0 for the number that has no positive counterpart."""
    return 0 if value == -(1 << 31) else abs(value)

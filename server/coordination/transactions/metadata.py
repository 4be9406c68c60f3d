"""The metadata of a transactional id, as a value and as a record of `__transaction_state`.

Source: Apache Kafka, TransactionMetadata.java, TransactionLog.java.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from protocol.internal_topics.coordinator_records import UnknownRecord
from protocol.internal_topics.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    TransactionRecord,
)
from server.coordination.producer import Producer

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NOT_STARTED = -1

EPOCH_MAX = 0x7FFF
"""Never given to a producer, so that a producer can always be fenced with a higher epoch."""

EPOCH_BUMPED_SINCE = 2
"""The first transaction version that raises the epoch when a transaction ends (KIP-890)."""


class TransactionState(enum.IntEnum):
    """The state of a transactional id. Stored on disk: numbers never change."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see, such as PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


WRITTEN = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}


class TransactionPartition(NamedTuple):
    """A partition in a transaction."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The state of a transactional id. Times are in ms since 1970."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """Its producer id before the last change; the same one, unless its epochs were exhausted."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the end of the transaction, if the epochs of this one are exhausted."""
    producer_epoch: int = NO_EPOCH
    """-1: no producer has got the id yet."""
    last_producer_epoch: int = NO_EPOCH
    """An epoch that the producer may still use if the answer with the new one got lost; not stored."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TransactionPartition] = frozenset()
    start_ms: int = NOT_STARTED
    last_update_ms: int
    client_transaction_version: int = 0

    @property
    def producer(self) -> Producer:
        """The producer that has the id."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def is_known(self) -> bool:
        """Whether a producer has got the id."""
        return self.producer_epoch != NO_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether this is the last epoch of its producer id."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def has_raised_epoch(self) -> bool:
        """Whether the end of its last transaction raised the epoch."""
        return self.client_transaction_version >= EPOCH_BUMPED_SINCE

    @property
    def deadline_ms(self) -> int | None:
        """When the transaction is aborted unless it has ended; None: no transaction is open."""
        is_open = self.state is TransactionState.ONGOING
        return self.start_ms + self.timeout_ms if is_open else None

    def changed(self, **fields: Any) -> TransactionMetadata:
        """Returns the metadata for the next record, with these fields replaced."""
        return replace(self, previous_producer_id=self.producer_id, **fields)


def record_of(transactional_id: str, metadata: TransactionMetadata) -> TransactionRecord:
    """Returns the record to write; a tombstone for a dead id."""
    key = TransactionLogKey(transactional_id=transactional_id)
    if metadata.state is TransactionState.DEAD:
        return TransactionRecord(key, None)
    is_empty = metadata.state is TransactionState.EMPTY
    return TransactionRecord(
        key,
        TransactionLogValue(
            producer_id=metadata.producer_id,
            previous_producer_id=metadata.previous_producer_id,
            next_producer_id=metadata.next_producer_id,
            producer_epoch=metadata.producer_epoch,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_status=metadata.state,
            transaction_partitions=None
            if is_empty
            else tuple(
                TransactionPartitions(topic=topic, partition_ids=partitions)
                for topic, partitions in by_topic(metadata.partitions)
            ),
            transaction_last_update_timestamp_ms=metadata.last_update_ms,
            transaction_start_timestamp_ms=metadata.start_ms,
            client_transaction_version=metadata.client_transaction_version,
        ),
    )


def metadata_of(value: TransactionLogValue) -> TransactionMetadata:
    """Decode a record.

    Raises:
        UnknownRecord: this release does not write its state.
    """
    if value.transaction_status not in WRITTEN:
        raise UnknownRecord(f"TransactionLogValue with status {value.transaction_status}")
    return TransactionMetadata(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TransactionPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


def by_topic(partitions: Iterable[TransactionPartition]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields each topic with its partition numbers, both sorted."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    for topic in sorted(numbers):
        yield topic, tuple(sorted(numbers[topic]))

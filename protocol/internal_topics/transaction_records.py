"""Keys and values of `__transaction_state`: the states of transactional ids, in Kafka's format.

    key    type: int16 (0) | TransactionLogKey
    value  version: int16 | TransactionLogValue         0: not flexible; 1: the version written

A key of another type raises `UnknownRecordType`, and readers leave such a record in place. (Kafka
calls the key's type its version.)

Source: Apache Kafka 4.3, TransactionLog.java, TransactionLogKey.json, TransactionLogValue.json;
KIP-890, KIP-915.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.internal_topics.coordinator_records import (
    CoordinatorKey,
    CoordinatorRecord,
    CoordinatorValue,
    UnknownRecordType,
    key_type,
    read_key,
    read_value,
)
from protocol.wire.schema import INT8, INT16, INT32, INT64, STRING, array, wire, wire_class


@wire_class
class TransactionLogKey(CoordinatorKey):
    """A transactional id."""

    record_type = 0

    transactional_id: str = wire(STRING)


@wire_class
class TransactionPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partition_ids: tuple[int, ...] = wire(array(INT32))


@wire_class
class TransactionLogValue(CoordinatorValue):
    """The producer of a transactional id, and the state of its transaction."""

    versions = (0, 1)
    flexible_since = 1

    producer_id: int = wire(INT64)
    previous_producer_id: int = wire(INT64, since=1, tag=0, default=-1)
    """The producer id of the previous transaction, if this one has another."""
    next_producer_id: int = wire(INT64, since=1, tag=1, default=-1)
    """The producer id with which the client continues once this transaction has ended."""
    producer_epoch: int = wire(INT16)
    transaction_timeout_ms: int = wire(INT32)
    transaction_status: int = wire(INT8)
    """The number of a state: `server/coordination/transactions/metadata.py`."""
    transaction_partitions: tuple[TransactionPartitions, ...] | None = wire(
        array(TransactionPartitions), nullable_since=0
    )
    """None if no transaction was ever begun."""
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)
    """-1 if no transaction is open."""
    client_transaction_version: int = wire(INT16, since=1, tag=2, default=0)
    """2: the producer's epoch rises with each transaction (KIP-890)."""

    @property
    def written_version(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class TransactionRecord(CoordinatorRecord):
    """One record; without a value it deletes the transactional id."""

    key: TransactionLogKey
    value: TransactionLogValue | None


def read_record(key: bytes, value: bytes | None) -> TransactionRecord:
    """Decode a record.

    Raises:
        UnknownRecordType, UnknownRecord: a later release wrote it.
        DecodeError: the bytes are not such a record.
    """
    if key_type(key) != TransactionLogKey.record_type:
        raise UnknownRecordType(f"key of type {key_type(key)}")
    return TransactionRecord(
        read_key(TransactionLogKey, key),
        None if value is None else read_value(TransactionLogValue, value),
    )

"""Names the guard that holds at an event of a transactional id (`state_table.py`). Pure.

Source: Apache Kafka, TransactionCoordinator.scala, TransactionMetadata.java; KIP-360, KIP-890.
"""

from __future__ import annotations

from server.coordination.producer import Producer
from server.coordination.transactions.metadata import (
    EPOCH_MAX,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionPartition,
)
from server.coordination.transactions.state_table import Guard

Pending = TransactionMetadata | None
"""The metadata that is being written; None: no change is being written."""


def init_guard(
    metadata: TransactionMetadata, pending: Pending, expected: Producer | None, spare_id: int
) -> Guard:
    """Returns the guard of an InitProducerId.

    Args:
        expected: the last id and epoch of the requesting producer; None: it names none.
    """
    if pending is not None:
        return Guard.WRITING
    if expected is not None and metadata.is_known and expected != metadata.producer:
        return Guard.MISSED_EPOCH if _missed_epoch(metadata, expected) else Guard.REPLACED
    if not metadata.is_epoch_exhausted:
        return Guard.ENTITLED
    return Guard.NO_SPARE_ID if spare_id == NO_PRODUCER_ID else Guard.EXHAUSTED


def add_guard(
    metadata: TransactionMetadata,
    pending: Pending,
    producer: Producer,
    partitions: frozenset[TransactionPartition],
) -> Guard:
    """Returns the guard of an AddPartitionsToTxn."""
    if pending is not None:
        return Guard.WRITING
    if (guard := _owner_guard(metadata, producer)) is not Guard.OWNER:
        return guard
    return Guard.NOTHING_NEW if partitions <= metadata.partitions else Guard.OWNER


def append_guard(
    metadata: TransactionMetadata,
    pending: Pending,
    producer: Producer,
    partition: TransactionPartition,
) -> Guard:
    """Returns the guard of an append of a transactional batch."""
    if (guard := _owner_guard(metadata, producer)) is not Guard.OWNER:
        return guard
    if pending is not None and pending.state.is_prepared:
        return Guard.ENDING
    return Guard.ADDED if partition in metadata.partitions else Guard.NOT_ADDED


def end_guard(metadata: TransactionMetadata, pending: Pending, producer: Producer) -> Guard:
    """Returns the guard of an EndTxn v0-4."""
    guard = _owner_guard(metadata, producer)
    return Guard.WRITING if guard is Guard.OWNER and pending is not None else guard


def raising_end_guard(
    metadata: TransactionMetadata, pending: Pending, producer: Producer, spare_id: int
) -> Guard:
    """Returns the guard of an EndTxn v5, which raises the epoch."""
    if pending is not None:
        return Guard.WRITING
    if _missed_end(metadata, producer):
        return Guard.MISSED_END
    guard = _owner_guard(metadata, producer)
    has_no_next = metadata.is_epoch_exhausted and spare_id == NO_PRODUCER_ID
    return Guard.NO_SPARE_ID if guard is Guard.OWNER and has_no_next else guard


def due_guard(pending: Pending, due_ms: int | None, now_ms: int) -> Guard:
    """Returns the guard of a check of the time.

    Args:
        due_ms: None: never.
    """
    if pending is not None:
        return Guard.WRITING
    return Guard.NOT_DUE if due_ms is None or now_ms < due_ms else Guard.DUE


def _owner_guard(metadata: TransactionMetadata, producer: Producer) -> Guard:
    if producer.id != metadata.producer_id or not metadata.is_known:
        return Guard.OTHER_ID
    is_owner = producer.epoch == metadata.producer_epoch
    return Guard.OWNER if is_owner else Guard.OTHER_EPOCH


def _missed_epoch(metadata: TransactionMetadata, producer: Producer) -> bool:
    """Returns whether the producer missed the last answer, which gave it a new epoch or id."""
    if producer.epoch != metadata.last_producer_epoch:
        return False
    return producer.id == metadata.producer_id or _missed_new_id(metadata, producer)


def _missed_new_id(metadata: TransactionMetadata, producer: Producer) -> bool:
    return (
        producer.id == metadata.previous_producer_id
        and producer.epoch == EPOCH_MAX - 1
        and metadata.producer_epoch == 0
    )


def _missed_end(metadata: TransactionMetadata, producer: Producer) -> bool:
    """Returns whether this producer's transaction ended with a raised epoch that it does not know.

    It ended the transaction itself and missed the answer (KIP-890), or the transaction timed out, or
    another producer took the id.

    Kafka does not check that the end raised the epoch. There, after an end in the old protocol, a
    producer that was replaced would get the epoch of its replacement.
    """
    if not metadata.state.is_complete or not metadata.has_raised_epoch:
        return False
    is_raised = (
        producer.id == metadata.producer_id
        and producer.epoch + 1 == metadata.producer_epoch < EPOCH_MAX
    )
    return is_raised or _missed_new_id(metadata, producer)

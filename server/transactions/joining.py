"""Partitions that join a transaction as they are produced to, and groups with their offsets (KIP-890).

In the new protocol no request comes before: what is new to the transaction is added by the Produce, or
the TxnOffsetCommit, itself, and that is durable before anything is appended. Whether it was, the
coordinator is asked once more right before the append, as in the old protocol.

Source: Apache Kafka, AddPartitionsToTxnManager.java, ReplicaManager.scala `handleProduceAppend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.messages.produce import ProduceRequest
from protocol.record_batch import read_header
from server.coordinator_topic import OFFSETS_TOPIC
from server.dispatch import RequestContext
from server.producer import Producer
from server.topic import INTERNAL_TOPICS
from server.transactions.metadata import EPOCH_BUMPED_SINCE, TransactionPartition
from storage.errors import StorageError

Refusals = Mapping[TransactionPartition, ErrorCode]
"""Partitions that could not be added, with the coordinator's reasons."""


async def join_transaction(
    transactional_id: str, request: ProduceRequest, context: RequestContext
) -> Refusals:
    """Add the partitions of a request to its transaction; returns those that could not be."""
    transactions = context.broker.transactions
    new: dict[Producer, set[TransactionPartition]] = {}
    for producer, partition in _written(request, context):
        code = transactions.may_write(transactional_id, producer.id, producer.epoch, *partition)
        if code is not ErrorCode.NONE:
            new.setdefault(producer, set()).add(partition)
    refused: dict[TransactionPartition, ErrorCode] = {}
    for producer, partitions in new.items():
        added = await transactions.add_when_possible(
            transactional_id,
            producer,
            frozenset(partitions),
            transaction_version=EPOCH_BUMPED_SINCE,
        )
        if added.error_code is not ErrorCode.NONE:
            refused |= dict.fromkeys(partitions, added.error_code)
    return refused


async def join_with_offsets(
    transactional_id: str,
    producer: Producer,
    group_id: str,
    context: RequestContext,
    *,
    transaction_version: int,
) -> ErrorCode:
    """Add the partition of `__consumer_offsets` that a group is in."""
    topic = context.broker.groups.topic
    try:
        await topic.ensure()
    except StorageError as error:
        context.code_of(error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition = TransactionPartition(OFFSETS_TOPIC, topic.partition_of(group_id))
    added = await context.broker.transactions.add_when_possible(
        transactional_id,
        producer,
        frozenset({partition}),
        transaction_version=transaction_version,
    )
    return added.error_code


def _written(
    request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[Producer, TransactionPartition]]:
    """Where the request has a transactional batch for; what is wrong otherwise is told later."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            log = context.log_of(topic.name, data.index)
            if isinstance(log, ErrorCode) or topic.name in INTERNAL_TOPICS or not data.records:
                continue
            try:
                header = read_header(data.records)
            except ProtocolError:
                continue
            if header.is_transactional:
                producer = Producer(header.producer_id, header.producer_epoch)
                yield producer, TransactionPartition(topic.name, data.index)

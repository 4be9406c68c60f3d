"""Adds partitions to a transaction on Produce, and groups on TxnOffsetCommit (KIP-890).

In the new protocol no separate request adds them: the Produce or the TxnOffsetCommit itself adds what
is new to the transaction, and that is durable before anything is appended. As in the old protocol, the
coordinator is asked again right before the append.

Source: Apache Kafka, AddPartitionsToTxnManager.java, ReplicaManager.scala `handleProduceAppend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from protocol.messages.produce import ProduceRequest
from protocol.records.batch_header import read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import EPOCH_BUMPED_SINCE, TransactionPartition
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.topics.topic import INTERNAL_TOPICS
from storage.files.errors import StorageError

Refusals = Mapping[TransactionPartition, ErrorCode]
"""Partitions that could not be added, with the coordinator's error codes."""


async def join_transaction(
    transactional_id: str, request: ProduceRequest, context: RequestContext
) -> Refusals:
    """Add the partitions of a request to its transaction. Returns those that could not be added."""
    transactions = context.broker.transactions
    new: dict[Producer, set[TransactionPartition]] = {}
    for producer, partition in _transactional_partitions(request, context):
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
    """Add a group's partition of `__consumer_offsets` to a transaction."""
    topic = context.broker.groups.topic
    try:
        await topic.ensure()
    except StorageError as error:
        context.log_failure(error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition = TransactionPartition(OFFSETS_TOPIC, topic.partition_of(group_id))
    added = await context.broker.transactions.add_when_possible(
        transactional_id,
        producer,
        frozenset({partition}),
        transaction_version=transaction_version,
    )
    return added.error_code


def _transactional_partitions(
    request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[Producer, TransactionPartition]]:
    """Yields the partitions with a transactional batch. Produce refuses invalid ones later."""
    for topic in request.topic_data:
        if not context.may(Operation.WRITE, ResourceType.TOPIC, topic.name):
            continue
        for data in topic.partition_data:
            log = context.log_of(topic.name, data.index)
            if isinstance(log, ErrorCode) or topic.name in INTERNAL_TOPICS or not data.records:
                continue
            if log.config.is_mirror:
                continue
            try:
                header = read_header(data.records)
            except ProtocolError:
                continue
            if header.is_transactional:
                producer = Producer(header.producer_id, header.producer_epoch)
                yield producer, TransactionPartition(topic.name, data.index)

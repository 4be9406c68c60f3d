"""AddPartitionsToTxn (key 24), v0-v5.

Behaviour: all partitions of a transaction are added, or none: if one of them does not exist or is the
broker's own, the others get OPERATION_NOT_ATTEMPTED. With `verify_only` (v4) it is only said whether
they are in it, as a broker asks that is no coordinator.
A partition that is not in it is TRANSACTION_ABORTABLE, in v4 too: the broker that asks translates.
Versions: v2 PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before · v4 several transactions.
Source: Apache Kafka, KafkaApis.scala `handleAddPartitionsToTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

from protocol.error_codes import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from server.dispatch import RequestContext
from server.producer import Producer
from server.topic import INTERNAL_TOPICS
from server.transactions.errors import in_terms_of
from server.transactions.metadata import TransactionPartition
from server.transactions.transaction import Outcome
from server.turns import Pace

SEVERAL_SINCE = 4
FENCED_SINCE = 2


@dataclass(frozen=True, slots=True)
class _Errors:
    """What became of the partitions of one transaction."""

    others: ErrorCode
    """Of those that have no error of their own."""
    by_partition: Mapping[TransactionPartition, ErrorCode] = field(default_factory=dict)

    def of(self, partition: TransactionPartition) -> ErrorCode:
        return self.by_partition.get(partition, self.others)


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> Awaitable[AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction; answer when that is durable."""
    asked = _transactions(request, context)
    results = [await _results(each, context) async for each in context.pace.paced(asked)]
    return _answer(request, context, results)


def refuse(
    request: AddPartitionsToTxnRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    if context.header.api_version >= SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(error_code=error_code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=error_code
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        )
    )


def _transactions(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> tuple[AddPartitionsToTxnTransaction, ...]:
    if context.header.api_version >= SEVERAL_SINCE:
        return request.transactions
    return (
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
    )


async def _results(
    asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> _Errors | Awaitable[_Errors]:
    pace = context.pace
    faults: dict[TransactionPartition, ErrorCode] = {}
    partitions: set[TransactionPartition] = set()
    async for topic in pace.paced(asked.topics):
        async for number in pace.paced(topic.partitions):
            partition = TransactionPartition(topic.name, number)
            if partition not in partitions:
                partitions.add(partition)
                if fault := _fault(partition, context):
                    faults[partition] = fault
    if faults:
        return _Errors(ErrorCode.OPERATION_NOT_ATTEMPTED, faults)
    producer = Producer(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return await _verified(asked.transactional_id, producer, partitions, context)
    added = context.broker.transactions.add_partitions(
        asked.transactional_id, producer, frozenset(partitions)
    )
    return _added(added, context)


def _fault(partition: TransactionPartition, context: RequestContext) -> ErrorCode:
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.broker.topics.get(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


async def _verified(
    transactional_id: str,
    producer: Producer,
    partitions: set[TransactionPartition],
    context: RequestContext,
) -> _Errors:
    transactions = context.broker.transactions
    errors: dict[TransactionPartition, ErrorCode] = {}
    async for each in context.pace.paced(partitions):
        error = transactions.may_write(transactional_id, producer.id, producer.epoch, *each)
        is_outside = error is ErrorCode.INVALID_TXN_STATE
        errors[each] = ErrorCode.TRANSACTION_ABORTABLE if is_outside else error
    return _Errors(ErrorCode.NONE, errors)


async def _added(added: Awaitable[Outcome], context: RequestContext) -> _Errors:
    return _Errors(in_terms_of((await added).error_code, context, fenced_since=FENCED_SINCE))


async def _answer(
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
    results: list[_Errors | Awaitable[_Errors]],
) -> AddPartitionsToTxnResponse:
    pace = context.pace
    errors = [
        each if isinstance(each, _Errors) else await each async for each in pace.paced(results)
    ]
    if context.header.api_version < SEVERAL_SINCE:
        topics = await _topic_results(request.v3_and_below_topics, errors[0], pace)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    answered = zip(request.transactions, errors, strict=True)
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            [
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=await _topic_results(asked.topics, those, pace),
                )
                async for asked, those in pace.paced(answered)
            ]
        )
    )


async def _topic_results(
    topics: tuple[AddPartitionsToTxnTopic, ...], errors: _Errors, pace: Pace
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=await _partition_results(topic, errors, pace),
            )
            async for topic in pace.paced(topics)
        ]
    )


async def _partition_results(
    topic: AddPartitionsToTxnTopic, errors: _Errors, pace: Pace
) -> tuple[AddPartitionsToTxnPartitionResult, ...]:
    return tuple(
        [
            AddPartitionsToTxnPartitionResult(
                partition_index=number,
                partition_error_code=errors.of(TransactionPartition(topic.name, number)),
            )
            async for number in pace.paced(topic.partitions)
        ]
    )

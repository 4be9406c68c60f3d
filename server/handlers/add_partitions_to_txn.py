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

SEVERAL_SINCE = 4
FENCED_SINCE = 2

_Errors = Mapping[TransactionPartition, ErrorCode]


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> Awaitable[AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction; answer when that is durable."""
    results = [_results(each, context) for each in _transactions(request, context)]
    return _answer(request, context, results)


def refuse(
    request: AddPartitionsToTxnRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    if context.header.api_version >= SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(error_code=error_code)
    topics = request.v3_and_below_topics
    return _response(request, context, [dict.fromkeys(_partitions(topics), error_code)])


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


def _results(
    asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> _Errors | Awaitable[_Errors]:
    partitions = frozenset(_partitions(asked.topics))
    faults = {each: fault for each in partitions if (fault := _fault(each, context))}
    if faults:
        spared = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return {**spared, **faults}
    producer = Producer(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return _verified(asked.transactional_id, producer, partitions, context)
    added = context.broker.transactions.add_partitions(asked.transactional_id, producer, partitions)
    return _added(added, partitions, context)


def _partitions(topics: tuple[AddPartitionsToTxnTopic, ...]) -> list[TransactionPartition]:
    return [
        TransactionPartition(topic.name, partition)
        for topic in topics
        for partition in topic.partitions
    ]


def _fault(partition: TransactionPartition, context: RequestContext) -> ErrorCode:
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.broker.topics.get(partition.topic)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _verified(
    transactional_id: str,
    producer: Producer,
    partitions: frozenset[TransactionPartition],
    context: RequestContext,
) -> _Errors:
    transactions = context.broker.transactions
    errors = {
        each: transactions.may_write(transactional_id, producer.id, producer.epoch, *each)
        for each in partitions
    }
    return {
        each: ErrorCode.TRANSACTION_ABORTABLE if error is ErrorCode.INVALID_TXN_STATE else error
        for each, error in errors.items()
    }


async def _added(
    added: Awaitable[Outcome],
    partitions: frozenset[TransactionPartition],
    context: RequestContext,
) -> _Errors:
    code = in_terms_of((await added).error_code, context, fenced_since=FENCED_SINCE)
    return dict.fromkeys(partitions, code)


async def _answer(
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
    results: list[_Errors | Awaitable[_Errors]],
) -> AddPartitionsToTxnResponse:
    errors = [each if isinstance(each, Mapping) else await each for each in results]
    return _response(request, context, errors)


def _response(
    request: AddPartitionsToTxnRequest, context: RequestContext, errors: list[_Errors]
) -> AddPartitionsToTxnResponse:
    if context.header.api_version < SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_topic_results(request.v3_and_below_topics, errors[0])
        )
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=_topic_results(asked.topics, those),
            )
            for asked, those in zip(request.transactions, errors, strict=True)
        )
    )


def _topic_results(
    topics: tuple[AddPartitionsToTxnTopic, ...], errors: _Errors
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=errors[TransactionPartition(topic.name, partition)],
                )
                for partition in topic.partitions
            ),
        )
        for topic in topics
    )

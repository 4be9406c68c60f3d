"""AddPartitionsToTxn (key 24), v0-v5.

Behaviour: adds all partitions of a transaction or none: if one of them does not exist or belongs to an
internal topic, the others get OPERATION_NOT_ATTEMPTED. With `verify_only` (v4) it only checks whether
the partitions are in the transaction; brokers that are not the coordinator send this.
A partition that is not in the transaction gets TRANSACTION_ABORTABLE, in v4 too: the asking broker
translates the code.
Versions: v2 PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before) · v4 several transactions.
Source: Apache Kafka, KafkaApis.scala `handleAddPartitionsToTxnRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import TransactionPartition
from server.coordination.transactions.transaction import Outcome
from server.handlers.shared.transaction_errors import error_for_version
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType
from server.topics.mirrors import refusal_on_mirror
from server.topics.topic import INTERNAL_TOPICS

SEVERAL_SINCE = 4
FENCED_SINCE = 2


@dataclass(frozen=True, slots=True)
class _Errors:
    """The error codes for the partitions of one transaction."""

    others: ErrorCode
    """The code for partitions that have no error of their own."""
    by_partition: Mapping[TransactionPartition, ErrorCode] = field(default_factory=dict)

    def of(self, partition: TransactionPartition) -> ErrorCode:
        return self.by_partition.get(partition, self.others)


async def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> Awaitable[AddPartitionsToTxnResponse]:
    """Add the partitions of each transaction, and answer when that is durable."""
    asked = _transactions(request, context)
    results = [await _process(each, context) async for each in context.pace.paced(asked)]
    return _answer(request, context, results)


def refuse(
    request: AddPartitionsToTxnRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    if context.header.api_version >= SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(error_code=error_code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=lazy_array(
            lambda topic: AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=lazy_array(
                    lambda partition: AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=error_code
                    ),
                    topic.partitions,
                ),
            ),
            request.v3_and_below_topics,
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


async def _process(
    asked: AddPartitionsToTxnTransaction, context: RequestContext
) -> _Errors | Awaitable[_Errors]:
    """Add or verify the partitions of one transaction; the awaitable waits until they are durable."""
    pace = context.pace
    faults: dict[TransactionPartition, ErrorCode] = {}
    partitions: set[TransactionPartition] = set()
    async for topic in pace.paced(asked.topics):
        async for number in pace.paced(topic.partitions):
            partition = TransactionPartition(topic.name, number)
            if partition not in partitions:
                partitions.add(partition)
                if fault := _fault_of(partition, context):
                    faults[partition] = fault
    if faults:
        return _Errors(ErrorCode.OPERATION_NOT_ATTEMPTED, faults)
    producer = Producer(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return await _verify(asked.transactional_id, producer, partitions, context)
    added = context.broker.transactions.add_partitions(
        asked.transactional_id, producer, frozenset(partitions)
    )
    return _await_added(added, context)


def _fault_of(partition: TransactionPartition, context: RequestContext) -> ErrorCode:
    if partition.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_client = context.header.api_version < SEVERAL_SINCE
    if is_client and not context.may(Operation.WRITE, ResourceType.TOPIC, partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.broker.topics.get(partition.topic)
    if topic is None and context.broker.readable_topics.get(partition.topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    mirror = refusal_on_mirror(ApiKey.ADD_PARTITIONS_TO_TXN, topic.name, topic.config)
    return ErrorCode.NONE if mirror is None else mirror.error_code


async def _verify(
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


async def _await_added(added: Awaitable[Outcome], context: RequestContext) -> _Errors:
    return _Errors(error_for_version((await added).error_code, context, fenced_since=FENCED_SINCE))


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

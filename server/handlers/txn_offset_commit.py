"""TxnOffsetCommit (key 28), v0-v5.

Behaviour: writes all offsets of a request in one batch of the producer's transaction, and answers when
the batch is durable. The offsets take effect when the transaction is committed. The group's partition of
`__consumer_offsets` must be in the transaction (AddOffsetsToTxn). An unknown topic or partition, or
overlong metadata, fails only its partition; a fenced producer, an unknown member or a wrong generation
fails the whole request. Generation -1 without a member commits for any group.
Versions: v2 leader epochs, COORDINATOR_LOAD_IN_PROGRESS (fatal to older producers) · v3 member, instance
and generation (KIP-447) · v4 TRANSACTION_ABORTABLE (INVALID_TXN_STATE before, which is fatal) · v5 the
group's partition joins the transaction automatically (KIP-890).
Source: Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java `commitTransactionalOffset`,
AddPartitionsToTxnManager.scala, CoordinatorOperationExceptionHelper.java.
"""

from __future__ import annotations

from protocol.internal_topics.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from server.coordination.groups.offset_checks import Claim
from server.coordination.producer import Producer
from server.coordination.transactions.metadata import EPOCH_BUMPED_SINCE
from server.handlers.shared.joining import join_with_offsets
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType

LOAD_IN_PROGRESS_SINCE = 2
ABORTABLE_SINCE = 4
JOINS_SINCE = 5

TRANSLATED_CODES = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}

_TopicPartition = tuple[str, int]


async def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Check every partition, then commit the valid ones together."""
    pace = context.pace
    refused: dict[_TopicPartition, ErrorCode] = {}
    records: list[GroupRecord] = []
    async for topic in pace.paced(request.topics):
        async for partition in pace.paced(topic.partitions):
            error_code = _check(topic.name, partition, context)
            if error_code is ErrorCode.NONE:
                records.append(_record(request.group_id, topic.name, partition, context))
            else:
                refused[topic.name, partition.partition_index] = error_code
    outcome = await _commit(request, context, records) if records else ErrorCode.NONE
    topics = [
        await _topic_response(topic, refused, outcome, pace)
        async for topic in pace.paced(request.topics)
    ]
    return TxnOffsetCommitResponse(topics=tuple(topics))


def refuse(
    request: TxnOffsetCommitRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=lazy_array(
            lambda topic: TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=lazy_array(
                    lambda each: TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error_code
                    ),
                    topic.partitions,
                ),
            ),
            request.topics,
        )
    )


async def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext, records: list[GroupRecord]
) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    claim = Claim(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    producer = Producer(request.producer_id, request.producer_epoch)
    if context.header.api_version >= JOINS_SINCE:
        refused = await join_with_offsets(
            request.transactional_id,
            producer,
            request.group_id,
            context,
            transaction_version=EPOCH_BUMPED_SINCE,
        )
        if refused is not ErrorCode.NONE:
            return _translate(refused, context.header.api_version)

    def may_write(partition: int) -> ErrorCode:
        return context.broker.transactions.may_write(
            request.transactional_id, producer.id, producer.epoch, OFFSETS_TOPIC, partition
        )

    outcome = await context.broker.offsets.commit_in_transaction(
        request.group_id, claim, producer, records, may_write=may_write
    )
    return _translate(outcome, context.header.api_version)


def _translate(outcome: ErrorCode, version: int) -> ErrorCode:
    """Returns the error code by which clients of this version know `outcome`."""
    if outcome is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOAD_IN_PROGRESS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if outcome is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return TRANSLATED_CODES.get(outcome, outcome)


def _check(
    topic: str, partition: TxnOffsetCommitRequestPartition, context: RequestContext
) -> ErrorCode:
    """Returns the error of one requested partition; NONE if it is valid."""
    if not context.may(Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = context.broker.readable_topics.get(topic)
    if found is None or not 0 <= partition.partition_index < len(found.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(partition.committed_metadata or "") > context.broker.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _record(
    group_id: str,
    topic: str,
    partition: TxnOffsetCommitRequestPartition,
    context: RequestContext,
) -> GroupRecord:
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=context.broker.clock.now_ms(),
        ),
    )


async def _topic_response(
    topic: TxnOffsetCommitRequestTopic,
    refused: dict[_TopicPartition, ErrorCode],
    outcome: ErrorCode,
    pace: Pace,
) -> TxnOffsetCommitResponseTopic:
    """Returns all requested partitions of a topic, each with its own error or else `outcome`."""
    partitions = [
        TxnOffsetCommitResponsePartition(
            partition_index=each.partition_index,
            error_code=refused.get((topic.name, each.partition_index), outcome),
        )
        async for each in pace.paced(topic.partitions)
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(partitions))

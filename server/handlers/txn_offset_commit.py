"""TxnOffsetCommit (key 28), v0-v5.

Behaviour: what one request commits is written in one batch of the producer's transaction, answered when
that is durable, and holds when the transaction is committed. The group's partition of
`__consumer_offsets` must be in the transaction (AddOffsetsToTxn). A topic or partition that does not
exist, and metadata that are too long, are refused for themselves; a producer that is fenced, a member
that is none any more, or a wrong generation refuse everything. Generation -1 without a member commits
for any group.
Versions: v2 leader epochs · v3 member, instance and generation (KIP-447); COORDINATOR_LOAD_IN_PROGRESS,
which older producers do not survive, is told from v2 on · v4 TRANSACTION_ABORTABLE, which was
INVALID_TXN_STATE, a fatal error, before · v5 the group's partition joins the transaction by itself
(KIP-890).
Source: Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java `commitTransactionalOffset`,
AddPartitionsToTxnManager.scala,
CoordinatorOperationExceptionHelper.java.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from server.coordinator_topic import OFFSETS_TOPIC
from server.dispatch import RequestContext
from server.groups.group_checks import Claim
from server.producer import Producer
from server.transactions.joining import join_with_offsets
from server.transactions.metadata import EPOCH_BUMPED_SINCE
from server.turns import Pace

LOAD_IN_PROGRESS_SINCE = 2
ABORTABLE_SINCE = 4
JOINS_SINCE = 5

IN_THEIR_WORDS = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}

_Place = tuple[str, int]


async def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Check every partition, then commit those that are in order, together."""
    pace = context.pace
    refused: dict[_Place, ErrorCode] = {}
    records: list[GroupRecord] = []
    async for topic in pace.paced(request.topics):
        async for partition in pace.paced(topic.partitions):
            error_code = _error(topic.name, partition, context)
            if error_code is ErrorCode.NONE:
                records.append(_record(request.group_id, topic.name, partition, context))
            else:
                refused[topic.name, partition.partition_index] = error_code
    outcome = await _commit(request, context, records) if records else ErrorCode.NONE
    topics = [
        await _answered(topic, refused, outcome, pace) async for topic in pace.paced(request.topics)
    ]
    return TxnOffsetCommitResponse(topics=tuple(topics))


def refuse(
    request: TxnOffsetCommitRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error_code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
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
            return _told(refused, context.header.api_version)

    def may_write(partition: int) -> ErrorCode:
        return context.broker.transactions.may_write(
            request.transactional_id, producer.id, producer.epoch, OFFSETS_TOPIC, partition
        )

    outcome = await context.broker.offsets.commit_in_transaction(
        request.group_id, claim, producer, records, may_write=may_write
    )
    return _told(outcome, context.header.api_version)


def _told(outcome: ErrorCode, version: int) -> ErrorCode:
    """An error in the words that clients of the version know."""
    if outcome is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOAD_IN_PROGRESS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if outcome is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return IN_THEIR_WORDS.get(outcome, outcome)


def _error(
    topic: str, partition: TxnOffsetCommitRequestPartition, context: RequestContext
) -> ErrorCode:
    """What is wrong with one partition of a request."""
    found = context.broker.topics.get(topic)
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


async def _answered(
    topic: TxnOffsetCommitRequestTopic,
    refused: dict[_Place, ErrorCode],
    outcome: ErrorCode,
    pace: Pace,
) -> TxnOffsetCommitResponseTopic:
    """Every partition that was asked for, with its own error or everybody's."""
    partitions = [
        TxnOffsetCommitResponsePartition(
            partition_index=each.partition_index,
            error_code=refused.get((topic.name, each.partition_index), outcome),
        )
        async for each in pace.paced(topic.partitions)
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(partitions))

"""OffsetCommit (key 8), v2-v10.

Behaviour: writes all offsets of a request in one batch, and answers when the batch is durable. An
unknown topic or overlong metadata fails only its partition, and so does a link's slot that was
invalidated (OFFSET_OUT_OF_RANGE, `server/coordination/groups/holds.py`); an unknown member, a wrong
generation or a rebalancing group fails the whole request. Generation -1 without a member commits for a
group without members; the group need not exist.
Versions: v2-v4 retention_time_ms · v7 group_instance_id (KIP-345) · v9 member epochs (KIP-848),
GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION before) · v10 topics by id.
Source: Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.internal_topics.group_records import (
    NO_TIMESTAMP,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.messages.offset_commit import (
    NO_RETENTION_TIME,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.groups.committed_offsets import place_of
from server.coordination.groups.offset_checks import Claim
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType
from storage.formats.config_property import LONG_MAX

BY_ID_SINCE = 10
GROUP_ID_NOT_FOUND_SINCE = 9
MEMBER_EPOCH_SINCE = 9

_Place = tuple[int, int]
"""The positions of a topic and of a partition in the request."""


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Check every partition, then commit the valid ones together."""
    pace = context.pace
    refused: dict[_Place, ErrorCode] = {}
    records: dict[_Place, GroupRecord] = {}
    too_long: list[_Place] = []
    async for at, topic in pace.paced(enumerate(request.topics)):
        name = _name(topic, context)
        async for index, partition in pace.paced(enumerate(topic.partitions)):
            if isinstance(name, ErrorCode):
                refused[at, index] = name
            elif _is_too_long(partition, context):
                too_long.append((at, index))
            else:
                records[at, index] = _record(request, name, topic, partition, context)
    outcome = ErrorCode.NONE
    if records or too_long:
        outcome = await _commit_valid(request, context, records, refused)
    if outcome is ErrorCode.NONE:
        refused |= dict.fromkeys(too_long, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    topics = [
        await _topic_response(at, topic, refused, outcome, pace)
        async for at, topic in pace.paced(enumerate(request.topics))
    ]
    return OffsetCommitResponse(topics=tuple(topics))


def refuse(
    request: OffsetCommitRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=lazy_array(
            lambda topic: OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=lazy_array(
                    lambda each: OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error_code
                    ),
                    topic.partitions,
                ),
            ),
            request.topics,
        )
    )


async def _commit_valid(
    request: OffsetCommitRequest,
    context: RequestContext,
    records: dict[_Place, GroupRecord],
    refused: dict[_Place, ErrorCode],
) -> ErrorCode:
    """Commit the records together, except a link's slots that were invalidated, which it refuses."""
    while True:
        for place in _invalidated(request, context, records):
            refused[place] = ErrorCode.OFFSET_OUT_OF_RANGE
            del records[place]
        outcome = await _commit(request, context, list(records.values()))
        if outcome is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return outcome
        # Some slots were invalidated meanwhile. The others must not be refused with them.


async def _commit(
    request: OffsetCommitRequest, context: RequestContext, records: list[GroupRecord]
) -> ErrorCode:
    claim = Claim(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        knows_epochs=context.header.api_version >= MEMBER_EPOCH_SINCE,
    )
    outcome = await context.broker.offsets.commit(request.group_id, claim, records)
    is_old = context.header.api_version < GROUP_ID_NOT_FOUND_SINCE
    if outcome is ErrorCode.GROUP_ID_NOT_FOUND and is_old:
        return ErrorCode.ILLEGAL_GENERATION
    return outcome


def _name(topic: OffsetCommitRequestTopic, context: RequestContext) -> str | ErrorCode:
    """Returns the topic's name, or an error code if it does not exist or the client may not read it."""
    topics = context.broker.readable_topics
    if context.header.api_version >= BY_ID_SINCE:
        found = topics.by_id(topic.topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        may_read = context.may(Operation.READ, ResourceType.TOPIC, found.name)
        return found.name if may_read else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not context.may(Operation.READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = topics.get(topic.name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.name


def _invalidated(
    request: OffsetCommitRequest, context: RequestContext, records: Mapping[_Place, GroupRecord]
) -> list[_Place]:
    """Returns the places of a link's slots that were invalidated."""
    refused = context.broker.offsets.refused_slots(request.group_id, records.values())
    return [place for place, each in records.items() if place_of(each) in refused]


def _is_too_long(partition: OffsetCommitRequestPartition, context: RequestContext) -> bool:
    metadata = partition.committed_metadata or ""
    return len(metadata) > context.broker.config.offset_metadata_max_bytes


def _record(
    request: OffsetCommitRequest,
    name: str,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    context: RequestContext,
) -> GroupRecord:
    now_ms = context.broker.clock.now_ms()
    retention_ms = request.retention_time_ms
    return GroupRecord(
        OffsetCommitKey(group=request.group_id, topic=name, partition=partition.partition_index),
        OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=NO_TIMESTAMP
            if retention_ms == NO_RETENTION_TIME
            else min(now_ms + retention_ms, LONG_MAX),
            topic_id=topic.topic_id,
        ),
    )


async def _topic_response(
    at: int,
    topic: OffsetCommitRequestTopic,
    refused: dict[_Place, ErrorCode],
    outcome: ErrorCode,
    pace: Pace,
) -> OffsetCommitResponseTopic:
    """Returns all requested partitions of a topic, each with its own error or else `outcome`."""
    partitions = [
        OffsetCommitResponsePartition(
            partition_index=partition.partition_index,
            error_code=refused.get((at, index), outcome),
        )
        async for index, partition in pace.paced(enumerate(topic.partitions))
    ]
    return OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)
    )

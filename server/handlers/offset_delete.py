"""OffsetDelete (key 47), v0.

Behaviour: deletes a group's committed offsets for some partitions, and answers when that is durable. In
a group of consumers, topics to which a member is subscribed are refused (GROUP_SUBSCRIBED_TO_TOPIC);
any other group must be empty (NON_EMPTY_GROUP). A partition without a committed offset is no error.
Source: KIP-496; Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java `deleteOffsets`.
"""

from __future__ import annotations

import itertools

from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Delete the committed offsets of the partitions whose topic exists."""
    topics, pace = context.broker.readable_topics, context.pace
    keys: list[tuple[str, int]] = []
    unauthorized: set[str] = set()
    async for topic in pace.paced(request.topics):
        if not context.may(Operation.READ, ResourceType.TOPIC, topic.name):
            unauthorized.add(topic.name)
        elif topics.get(topic.name) is not None:
            numbers = [each.partition_index async for each in pace.paced(topic.partitions)]
            keys += zip(itertools.repeat(topic.name), numbers, strict=False)
    outcome = await context.broker.offsets.delete(request.group_id, keys)
    if isinstance(outcome, ErrorCode):
        return OffsetDeleteResponse(error_code=outcome)
    answered = [
        await _topic_response(
            topic,
            {} if topic.name in unauthorized else outcome,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if topic.name in unauthorized
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            pace,
        )
        async for topic in pace.paced(request.topics)
    ]
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=tuple(answered))


async def _topic_response(
    topic: OffsetDeleteRequestTopic,
    outcome: dict[tuple[str, int], ErrorCode],
    others: ErrorCode,
    pace: Pace,
) -> OffsetDeleteResponseTopic:
    """Returns all requested partitions of a topic, each with its own outcome or else `others`."""
    partitions = [
        OffsetDeleteResponsePartition(
            partition_index=each.partition_index,
            error_code=outcome.get((topic.name, each.partition_index), others),
        )
        async for each in pace.paced(topic.partitions)
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(partitions))


def refuse(
    request: OffsetDeleteRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error_code)

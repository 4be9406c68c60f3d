"""OffsetDelete (key 47), v0.

Behaviour: forgets what a group has committed for some partitions; answered when that is durable. Of a
group of consumers only topics that no member is subscribed to (GROUP_SUBSCRIBED_TO_TOPIC); of
another group only when it is empty (NON_EMPTY_GROUP). A partition without a commit is no error.
Source: KIP-496; Apache Kafka, KafkaApis.scala, OffsetMetadataManager.java `deleteOffsets`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from server.dispatch import RequestContext


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Forget those whose topic exists."""
    topics = context.broker.topics
    keys = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        if topics.get(topic.name) is not None
        for partition in topic.partitions
    ]
    outcome = await context.broker.offsets.delete(request.group_id, keys)
    if isinstance(outcome, ErrorCode):
        return OffsetDeleteResponse(error_code=outcome)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=outcome.get((topic.name, each.partition_index), unknown),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def refuse(
    request: OffsetDeleteRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error_code)

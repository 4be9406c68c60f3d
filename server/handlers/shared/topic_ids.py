"""Resolves the topic ids in requests to names (KIP-516; docs/design/topic-ids.md)."""

from __future__ import annotations

from uuid import UUID

from protocol.messages.produce import ProduceRequest, TopicProduceData
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext


def name_of_topic(topic_id: UUID, context: RequestContext) -> str:
    """Returns the name of the topic with this id; empty if there is none."""
    topic = context.broker.readable_topics.by_id(topic_id)
    return "" if topic is None else topic.name


async def with_names(request: ProduceRequest, context: RequestContext) -> ProduceRequest:
    """Returns the request with each topic's name looked up by its id; empty if there is none."""
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=tuple(
            [
                TopicProduceData(
                    name=name_of_topic(topic.topic_id, context),
                    topic_id=topic.topic_id,
                    partition_data=topic.partition_data,
                )
                async for topic in context.pace.paced(request.topic_data)
            ]
        ),
    )


def fault_of_id(topic: TopicProduceData, context: RequestContext) -> ErrorCode | None:
    """Returns the error code for the id of a topic that `with_names` has looked up; None if it is valid.

    The topic may have been deleted since, and its name may belong to another topic now.
    """
    if not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    current = context.broker.readable_topics.get(topic.name)
    if current is not None and current.id != topic.topic_id:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return None

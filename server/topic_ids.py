"""Topics that a request names by their ids (KIP-516; docs/design/topic-ids.md)."""

from __future__ import annotations

from uuid import UUID

from protocol.error_codes import ErrorCode
from protocol.messages.produce import ProduceRequest, TopicProduceData
from server.dispatch import RequestContext


def name_of_topic(topic_id: UUID, context: RequestContext) -> str:
    """The name of the topic with this id; empty if there is none."""
    topic = context.broker.topics.by_id(topic_id)
    return "" if topic is None else topic.name


async def with_names(request: ProduceRequest, context: RequestContext) -> ProduceRequest:
    """The request with the name of each topic that it gives the id of; empty if there is none."""
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
    """What is wrong with the id of a topic that `with_names` has named; None if nothing is.

    The topic may have been deleted since, and its name may be another topic's now.
    """
    if not topic.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    current = context.broker.topics.get(topic.name)
    if current is not None and current.id != topic.topic_id:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return None

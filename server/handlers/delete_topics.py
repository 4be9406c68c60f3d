"""DeleteTopics (key 20), v1-v6.

Behaviour: each topic is deleted on its own, by name or, from v6, by id. The topic is gone when it
is answered; its files go in the background. Fetches that wait on it are woken and told.
What groups have committed for it goes, too.
With `delete.topic.enable=false` everything is refused. The topics that hold what groups have committed
and where transactions stand are always refused; Kafka would delete them.
Versions: v5 error_message · v6 topic_id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from protocol.error_codes import ErrorCode
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.primitives import ZERO_UUID
from server.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from server.dispatch import RequestContext
from server.topic import Topic

BY_ID_SINCE = 6
KEPT = {
    OFFSETS_TOPIC: "holds what every group has committed",
    TRANSACTION_STATE_TOPIC: "holds where every transaction stands",
}
"""Topics that nobody may delete, and why. The coordinators only read them at a start."""


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete the topics one by one."""
    if not context.broker.config.delete_topic_enable:
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        return refuse(request, context, disabled, "Topic deletion is disabled.")
    asked = _asked(request, context)
    times = Counter(asked)
    return DeleteTopicsResponse(
        responses=tuple(
            [
                await _delete(topic, context)
                if times[topic] == 1
                else _result(topic, ErrorCode.INVALID_REQUEST, _said_twice(topic))
                for topic in times
            ]
        )
    )


def refuse(
    request: DeleteTopicsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=tuple(_result(t, error_code, message) for t in _asked(request, context))
    )


def _asked(request: DeleteTopicsRequest, context: RequestContext) -> tuple[DeleteTopicState, ...]:
    if context.header.api_version >= BY_ID_SINCE:
        return request.topics
    return tuple(DeleteTopicState(name=name) for name in request.topic_names)


async def _delete(asked: DeleteTopicState, context: RequestContext) -> DeletableTopicResult:
    fault = _fault_of(asked)
    if fault is not None:
        return _result(asked, ErrorCode.INVALID_REQUEST, fault)
    topic = _find(asked, context)
    if isinstance(topic, ErrorCode):
        return _result(asked, topic)
    if topic.name in KEPT:
        text = f"{topic.name} {KEPT[topic.name]}."
        return _result(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    refused = await context.broker.topics.delete(topic)
    if refused is not None:
        return _result(asked, refused.error_code, refused.message)
    await context.broker.offsets.topic_deleted(topic.name)
    context.broker.probe.topic_deleted(topic.name)
    context.broker.cleaner_counts.topic_deleted(topic.name)
    return _result(asked, ErrorCode.NONE, name=topic.name, topic_id=topic.id)


def _fault_of(asked: DeleteTopicState) -> str | None:
    """What is wrong with the way a topic is named, in Kafka's words."""
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if asked.name is None and asked.topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    return None


def _said_twice(asked: DeleteTopicState) -> str:
    return f"Duplicate topic {'id' if asked.name is None else 'name'}."


def _find(asked: DeleteTopicState, context: RequestContext) -> Topic | ErrorCode:
    topics = context.broker.topics
    if asked.name is not None:
        return topics.get(asked.name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topics.by_id(asked.topic_id) or ErrorCode.UNKNOWN_TOPIC_ID


def _result(
    asked: DeleteTopicState,
    error_code: ErrorCode,
    message: str | None = None,
    *,
    name: str | None = None,
    topic_id: UUID = ZERO_UUID,
) -> DeletableTopicResult:
    if error_code and message is None:
        message = error_code.message
    return DeletableTopicResult(
        name=name or asked.name,
        topic_id=topic_id if topic_id.int else asked.topic_id,
        error_code=error_code,
        error_message=message,
    )

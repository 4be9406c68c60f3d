"""DeleteTopics (key 20), v1-v6.

Behaviour: each topic is deleted on its own, by name or, from v6, by id; one that a request has twice is
refused. The topic is gone when it is answered; its files go in the background. Fetches that wait on it
are woken and told. `timeout_ms` bounds the wait for others who change the same topics. What groups
have committed for it goes, too.
With `delete.topic.enable=false` everything is refused. The topics that hold what groups have committed
and where transactions stand are always refused; Kafka would delete them.
Versions: v5 error_message · v6 topic_id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
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
    """Delete the topics, all that can be at once."""
    if not context.broker.config.delete_topic_enable:
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        return refuse(request, context, disabled, "Topic deletion is disabled.")
    times: Counter[DeleteTopicState] = Counter()
    ids, named = set[UUID](), set[UUID]()
    async for asked in context.pace.paced(_asked(request, context)):
        times[asked] += 1
        if asked.name is None:
            ids.add(asked.topic_id)
        elif (topic := context.broker.topics.get(asked.name)) is not None:
            named.add(topic.id)
    results: dict[DeleteTopicState, DeletableTopicResult] = {}
    found: dict[DeleteTopicState, Topic] = {}
    async for asked in context.pace.paced(times):
        if asked.name is None and asked.topic_id in named:
            # The answer to its name says so.
            continue
        judged = _judge(asked, times[asked], ids, context)
        if isinstance(judged, Topic):
            found[asked] = judged
        else:
            results[asked] = judged
    results |= await _delete(found, request, context)
    answered = [results[asked] async for asked in context.pace.paced(times) if asked in results]
    return DeleteTopicsResponse(responses=tuple(answered))


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


def _judge(
    asked: DeleteTopicState, times: int, ids: Collection[UUID], context: RequestContext
) -> Topic | DeletableTopicResult:
    """The topic to delete, or the answer that refuses it.

    Args:
        times: how often the request says just this.
        ids: all ids that the request names.
    """
    fault = _fault_of(asked) or (_said_twice(asked) if times > 1 else None)
    if fault is not None:
        return _result(asked, ErrorCode.INVALID_REQUEST, fault)
    topic = _find(asked, context)
    if isinstance(topic, ErrorCode):
        return _result(asked, topic)
    if asked.name is not None and topic.id in ids:
        text = "The provided topic name maps to an ID that was already supplied."
        return _result(asked, ErrorCode.INVALID_REQUEST, text, topic_id=topic.id)
    if topic.name in KEPT:
        text = f"{topic.name} {KEPT[topic.name]}."
        return _result(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    return topic


async def _delete(
    found: Mapping[DeleteTopicState, Topic], request: DeleteTopicsRequest, context: RequestContext
) -> dict[DeleteTopicState, DeletableTopicResult]:
    """Delete the topics; what each is answered."""
    outcomes = await context.broker.topics.delete_all(
        list(found.values()), pace=context.pace, until_s=context.deadline_s(request.timeout_ms)
    )
    gone = {
        topic.name
        for topic, refused in zip(found.values(), outcomes, strict=True)
        if refused is None
    }
    await context.broker.offsets.topics_deleted(gone)
    async for name in context.pace.paced(gone):
        context.broker.probe.topic_deleted(name)
        context.broker.cleaner_counts.topic_deleted(name)
    return {
        asked: _result(asked, ErrorCode.NONE, name=topic.name, topic_id=topic.id)
        if refused is None
        else _result(asked, refused.error_code, refused.message)
        for (asked, topic), refused in zip(found.items(), outcomes, strict=True)
    }


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
        error_message=message or None,
    )

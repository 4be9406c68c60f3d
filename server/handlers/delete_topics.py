"""DeleteTopics (key 20), v1-v6.

Behaviour: each topic is deleted independently, by name or, from v6, by id; one that a request names
twice is refused. The topic is gone when the answer is sent; its files are deleted in the background.
Fetches that wait for it wake up and get an error. `timeout_ms` bounds the wait for other changes of the
same topics. Committed offsets of the topic are deleted too.
With `delete.topic.enable=false` every topic is refused. `__consumer_offsets` and `__transaction_state`
are always refused; Kafka would delete them.
Versions: v5 error_message · v6 topic_id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from uuid import UUID

from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from protocol.wire.primitives import ZERO_UUID
from server.coordination.coordinator_topic import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.topics.mirrors import refusal_on_mirror
from server.topics.topic import Topic

BY_ID_SINCE = 6
STRICT_SINCE = 5
"""Clients of earlier versions do not know THROTTLING_QUOTA_EXCEEDED and pause instead."""
PROTECTED = {
    OFFSETS_TOPIC: "cannot be deleted: it holds the committed offsets of all groups",
    TRANSACTION_STATE_TOPIC: "cannot be deleted: it holds the state of all transactions",
}
"""Topics that cannot be deleted, and why. The coordinators read them only at startup, so they would not
notice the deletion."""


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete all topics that may be deleted together."""
    if not context.broker.config.delete_topic_enable:
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        return refuse(request, context, disabled, "Topic deletion is disabled.")
    times: Counter[DeleteTopicState] = Counter()
    ids, named = set[UUID](), set[UUID]()
    async for asked in context.pace.paced(_asked(request, context)):
        times[asked] += 1
        if asked.name is None:
            ids.add(asked.topic_id)
        elif (topic := context.broker.topics.get(asked.name)) is not None and _may(
            Operation.DELETE, asked.name, context
        ):
            named.add(topic.id)
    results: dict[DeleteTopicState, DeletableTopicResult] = {}
    found: dict[DeleteTopicState, Topic] = {}
    async for asked in context.pace.paced(times):
        if asked.name is None and asked.topic_id in named:
            # The request also names this topic by name, and that answer reports the duplicate.
            continue
        found_or_refused = _topic_to_delete(asked, times[asked], ids, context)
        if isinstance(found_or_refused, Topic):
            found[asked] = found_or_refused
        else:
            results[asked] = found_or_refused
    results |= await _delete(found, request, context)
    answered = [results[asked] async for asked in context.pace.paced(times) if asked in results]
    return DeleteTopicsResponse(responses=tuple(answered))


def refuse(
    request: DeleteTopicsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=lazy_array(
            lambda asked: _result(asked, error_code, message), _asked(request, context)
        )
    )


def _asked(request: DeleteTopicsRequest, context: RequestContext) -> tuple[DeleteTopicState, ...]:
    if context.header.api_version >= BY_ID_SINCE:
        return request.topics
    return lazy_array(lambda name: DeleteTopicState(name=name), request.topic_names)


def _topic_to_delete(
    asked: DeleteTopicState, times: int, ids: Collection[UUID], context: RequestContext
) -> Topic | DeletableTopicResult:
    """Returns the topic to delete, or the result that refuses it.

    Args:
        times: how often the request contains this element.
        ids: all topic ids in the request.
    """
    fault = _fault_of(asked) or (_duplicate_text(asked) if times > 1 else None)
    if fault is not None:
        return _result(asked, ErrorCode.INVALID_REQUEST, fault)
    topic = _find(asked, context)
    unauthorized = _unauthorized(asked, topic, context)
    if unauthorized is not None:
        return unauthorized
    if isinstance(topic, ErrorCode):
        view = context.broker.readable_topics.refusal(asked.name or "")
        if view is not None:
            return _result(asked, view.error_code, view.message)
        return _result(asked, topic)
    if asked.name is not None and topic.id in ids:
        text = "The provided topic name maps to an ID that was already supplied."
        return _result(asked, ErrorCode.INVALID_REQUEST, text, topic_id=topic.id)
    if topic.name in PROTECTED:
        text = f"{topic.name} {PROTECTED[topic.name]}."
        return _result(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    is_strict = context.header.api_version >= STRICT_SINCE
    mirror = refusal_on_mirror(ApiKey.DELETE_TOPICS, topic.name, topic.config)
    refused = mirror or context.admit_mutations(len(topic.partitions), is_strict=is_strict)
    if refused is not None:
        return _result(asked, refused.error_code, refused.message)
    return topic


def _unauthorized(
    asked: DeleteTopicState, topic: Topic | ErrorCode, context: RequestContext
) -> DeletableTopicResult | None:
    """Returns the result for a client that may not delete a topic, or not know of it; else None."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if asked.name is not None and not _may(Operation.DESCRIBE, asked.name, context):
        return _result(asked, code)
    if isinstance(topic, ErrorCode) or _may(Operation.DELETE, topic.name, context):
        return None
    if asked.name is None and _may(Operation.DESCRIBE, topic.name, context):
        return _result(asked, code, name=topic.name)
    return _result(asked, code)


def _may(operation: Operation, name: str, context: RequestContext) -> bool:
    on_cluster = context.may(Operation.DELETE, ResourceType.CLUSTER, quiet=True)
    return on_cluster or context.may(operation, ResourceType.TOPIC, name)


async def _delete(
    found: Mapping[DeleteTopicState, Topic], request: DeleteTopicsRequest, context: RequestContext
) -> dict[DeleteTopicState, DeletableTopicResult]:
    """Delete the topics. Returns the result of each."""
    outcomes = await context.broker.topics.delete_all(
        list(found.values()), pace=context.pace, until_s=context.deadline_s(request.timeout_ms)
    )
    gone = {
        topic.name
        for topic, refused in zip(found.values(), outcomes, strict=True)
        if refused is None
    }
    views = context.broker.readable_topics.names_of_views(gone)
    await context.broker.offsets.expiry.topics_deleted({*gone, *views})
    async for name in context.pace.paced(views):
        context.broker.probe.topic_deleted(name)
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
    """Returns why a request's topic is not identified properly, in Kafka's words; None if it is."""
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if asked.name is None and asked.topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    return None


def _duplicate_text(asked: DeleteTopicState) -> str:
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

"""CreatePartitions (key 37), v0-v3.

Behaviour: each topic grows or fails independently; one that a request names twice fails. The count is
the new total of partitions, and must exceed the current one. Assignments may only name this broker, one
for each new partition. A request for more than 10,000 new partitions is refused as a whole; Kafka 4.3.1
adds 10,000 of them and answers UNKNOWN_SERVER_ERROR. New partitions are durable and usable when the
answer is sent. `timeout_ms` bounds the wait for other changes of the same topic; a change that has
started is finished, as in Kafka. In a compacted topic, new records of a key may go to another partition
than its older ones: the client must take that into account.
Source: KIP-195; Apache Kafka, ControllerApis.scala `createPartitions`, ReplicationControlManager.java.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.topics.mirrors import refusal_on_mirror
from server.topics.replica_assignment import fault_of_replicas
from server.topics.topic import Topic, TopicRefused
from server.topics.validation import fault_of_request

STRICT_SINCE = 3
"""Clients of earlier versions do not know THROTTLING_QUOTA_EXCEEDED and pause instead."""

UNAUTHORIZED = TopicRefused(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message="")
DUPLICATE = TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to the topics, one topic after the other."""
    times = Counter(topic.name for topic in request.topics)
    answers: dict[str, Topic | TopicRefused] = dict.fromkeys(times, DUPLICATE)
    once = []
    async for topic in context.pace.paced(request.topics):
        if times[topic.name] > 1:
            continue
        if context.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
            once.append(topic)
        else:
            answers[topic.name] = UNAUTHORIZED
    too_many = fault_of_request(_new_count(topic, context) for topic in once)
    async for topic in context.pace.paced(once):
        answers[topic.name] = too_many or await _add(topic, request, context)
    return CreatePartitionsResponse(
        results=tuple(_result(name, answer) for name, answer in answers.items())
    )


def refuse(
    request: CreatePartitionsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreatePartitionsResponse:
    refusal = TopicRefused(error_code=error_code, message=message)
    return CreatePartitionsResponse(
        results=lazy_array(lambda topic: _result(topic.name, refusal), request.topics)
    )


def _new_count(asked: CreatePartitionsTopic, context: RequestContext) -> int:
    """Returns how many partitions a topic would gain; 0 if it does not exist or would not grow."""
    topic = context.broker.topics.get(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


async def _add(
    asked: CreatePartitionsTopic, request: CreatePartitionsRequest, context: RequestContext
) -> Topic | TopicRefused:
    topic = context.broker.topics.get(asked.name)
    mirror = topic and refusal_on_mirror(ApiKey.CREATE_PARTITIONS, topic.name, topic.config)
    return (
        mirror
        or context.broker.readable_topics.refusal(asked.name)
        or _fault_of_assignments(asked, context)
        or await context.broker.topics.add_partitions(
            asked.name,
            asked.count,
            validate_only=request.validate_only,
            until_s=context.deadline_s(request.timeout_ms),
            admit=partial(
                context.admit_mutations, is_strict=context.header.api_version >= STRICT_SINCE
            ),
        )
    )


def _fault_of_assignments(
    asked: CreatePartitionsTopic, context: RequestContext
) -> TopicRefused | None:
    """Returns why the assignments are invalid: each new partition needs one, to this broker. It does not
    check whether the topic may grow."""
    new_count = _new_count(asked, context)
    if asked.assignments is None or new_count == 0:
        return None
    if len(asked.assignments) != new_count:
        text = (
            f"Attempted to add {new_count} additional partition(s), but only {len(asked.assignments)}"
            " assignment(s) were specified."
        )
        return TopicRefused(error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, message=text)
    node_id = context.broker.node.node_id
    faults = (fault_of_replicas(each.broker_ids, node_id) for each in asked.assignments)
    return next((fault for fault in faults if fault is not None), None)


def _result(name: str, answer: Topic | TopicRefused) -> CreatePartitionsTopicResult:
    if isinstance(answer, Topic):
        return CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE, error_message=None)
    return CreatePartitionsTopicResult(
        name=name, error_code=answer.error_code, error_message=answer.message or None
    )

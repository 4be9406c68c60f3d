"""CreatePartitions (key 37), v0-v3.

Behaviour: each topic grows or is refused on its own; one that a request has twice is refused. The
count is how many partitions the topic shall have in the end, and must be more than it has. Assignments
may name this broker only, one a new partition. More than 10,000 new partitions in a request are refused
as a whole; Kafka 4.3.1 adds 10,000 of them and answers UNKNOWN_SERVER_ERROR. New partitions are durable
and can be used once they are answered. `timeout_ms` bounds the wait for others who change the same
topic; what was begun is finished, as in Kafka. Keys of a compacted topic may then fall into other
partitions than their older records: it is for the client to know.
Source: KIP-195; Apache Kafka, ControllerApis.scala `createPartitions`, ReplicationControlManager.java.
"""

from __future__ import annotations

from collections import Counter

from protocol.error_codes import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from server.dispatch import RequestContext
from server.replica_assignment import fault_of_replicas
from server.topic import Topic, TopicRefused
from server.topic_creation import fault_of_request

DUPLICATE = TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to the topics one by one."""
    times = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if times[topic.name] == 1]
    too_many = fault_of_request(_added(topic, context) for topic in once)
    answers: dict[str, Topic | TopicRefused] = dict.fromkeys(times, DUPLICATE)
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
        results=tuple(_result(topic.name, refusal) for topic in request.topics)
    )


def _added(asked: CreatePartitionsTopic, context: RequestContext) -> int:
    """How many partitions a topic would get; 0 if it is not there, or would not grow."""
    topic = context.broker.topics.get(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


async def _add(
    asked: CreatePartitionsTopic, request: CreatePartitionsRequest, context: RequestContext
) -> Topic | TopicRefused:
    return _fault_of_assignments(asked, context) or await context.broker.topics.add_partitions(
        asked.name,
        asked.count,
        validate_only=request.validate_only,
        until_s=context.deadline_s(request.timeout_ms),
    )


def _fault_of_assignments(
    asked: CreatePartitionsTopic, context: RequestContext
) -> TopicRefused | None:
    """Each new partition must have one, to this broker; whether there can be new ones is not asked."""
    added = _added(asked, context)
    if asked.assignments is None or added == 0:
        return None
    if len(asked.assignments) != added:
        text = (
            f"Attempted to add {added} additional partition(s), but only {len(asked.assignments)}"
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

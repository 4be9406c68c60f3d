"""CreatePartitions (key 37), v0-v3.

Behaviour: each topic grows or is refused on its own; one that a request has twice is refused. The
count is how many partitions the topic shall have in the end, and must be more than it has. Assignments
may name this broker only, one a new partition. New partitions are durable and can be used once they
are answered; the timeout is not needed. Keys of a compacted topic may then fall into other
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
from server.topic import TopicRefused


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions to the topics one by one."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] > 1:
            text = "Duplicate topic name."
            results.append(_result(topic.name, ErrorCode.INVALID_REQUEST, text))
        else:
            results.append(await _add(topic, context, validate_only=request.validate_only))
    return CreatePartitionsResponse(results=tuple(results))


def refuse(
    request: CreatePartitionsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=tuple(_result(topic.name, error_code, message) for topic in request.topics)
    )


async def _add(
    asked: CreatePartitionsTopic, context: RequestContext, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    grown = _fault_of_assignments(asked, context) or await context.broker.topics.add_partitions(
        asked.name, asked.count, validate_only=validate_only
    )
    if isinstance(grown, TopicRefused):
        return _result(asked.name, grown.error_code, grown.message)
    return _result(asked.name, ErrorCode.NONE, None)


def _fault_of_assignments(
    asked: CreatePartitionsTopic, context: RequestContext
) -> TopicRefused | None:
    """Each new partition must have one, to this broker; whether there can be new ones is not asked."""
    topic = context.broker.topics.get(asked.name)
    added = 0 if topic is None else asked.count - len(topic.partitions)
    if asked.assignments is None or added <= 0:
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


def _result(name: str, error_code: ErrorCode, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error_code, error_message=message)

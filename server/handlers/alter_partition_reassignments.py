"""AlterPartitionReassignments (key 45), v0-v1.

Behaviour: the only valid replica list is this broker, which already has the replica: NONE, and nothing
moves. Any other list gets the error that Kafka answers on a cluster of one broker. No reassignment is
ever in progress, so cancelling one gets NO_REASSIGNMENT_IN_PROGRESS.
Versions: v1 allow_replication_factor_change (KIP-860), which the answer repeats.
Source: KIP-455; Apache Kafka, ReplicationControlManager.java `alterPartitionReassignments`.
"""

from __future__ import annotations

from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext
from server.topics.topic import Topic

Fault = tuple[ErrorCode, str | None]


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Check the replicas of each partition; nothing ever moves."""
    responses = [
        await _reassign(asked, context) async for asked in context.pace.paced(request.topics)
    ]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(responses),
    )


def refuse(
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error_code,
        error_message=message,
        responses=(),
    )


async def _reassign(asked: ReassignableTopic, context: RequestContext) -> ReassignableTopicResponse:
    topic = context.broker.topics.get(asked.name)
    node_id = context.broker.node.node_id
    partitions = [
        _answer(partition.partition_index, *_check(asked.name, topic, partition, node_id))
        async for partition in context.pace.paced(asked.partitions)
    ]
    return ReassignableTopicResponse(name=asked.name, partitions=tuple(partitions))


def _check(
    topic_name: str, topic: Topic | None, asked: ReassignablePartition, node_id: int
) -> Fault:
    """Returns why a partition cannot have these replicas, in Kafka's words; NONE if it has them."""
    if topic is None:
        text = f"Unable to find a topic named {topic_name}."
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text
    if not 0 <= asked.partition_index < len(topic.partitions):
        text = f"Unable to find partition {topic_name}:{asked.partition_index}."
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    text_or_none = fault_of_replicas(asked.replicas, node_id)
    if text_or_none is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, text_or_none
    return ErrorCode.NONE, None


def fault_of_replicas(replicas: tuple[int, ...], node_id: int) -> str | None:
    """Returns why a replica list is invalid on one broker, in Kafka's words; None if it is valid."""
    beginning = "The manual partition assignment includes"
    if not replicas:
        return f"{beginning} an empty replica list."
    stranger = next((each for each in replicas if each != node_id), None)
    if stranger is not None:
        return f"{beginning} broker {stranger}, but no such broker is registered."
    if len(replicas) > 1:
        return f"{beginning} the broker {node_id} more than once."
    return None


def _answer(
    number: int, error_code: ErrorCode, message: str | None
) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=number, error_code=error_code, error_message=message
    )

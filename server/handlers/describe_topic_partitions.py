"""DescribeTopicPartitions (key 75), v0.

Behaviour: describes the requested topics (all if the request names none) in the order of their names,
with their partitions: as many partitions as the client wants, at most `PARTITIONS_MAX`, and a cursor
from which the client can continue. A partition whose log is offline has no leader. Eligible leader
replicas are empty lists: there are none besides the leader, and the Java client cannot read a null.
Source: KIP-966; Apache Kafka, DescribeTopicPartitionsRequestHandler.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.handlers.metadata import describe_partition
from server.request_context import RequestContext
from server.runtime.paced_sort import paced_sort
from server.security.acls import Operation, ResourceType
from server.topics.names import fault_of_name
from server.views.readable_topics import Readable

PARTITIONS_MAX = 2_000
"""Kafka's default for max.request.partition.size.limit."""
START = Cursor(topic_name="", partition_index=0)


async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe as many partitions as fit, starting at the cursor."""
    cursor = request.cursor or START
    if cursor.partition_index < 0 or not await _is_asked(cursor.topic_name, request, context):
        # The cursor does not point into a requested topic.
        paced = context.pace.paced(request.topics)
        refused = [_refused(topic.name, ErrorCode.INVALID_REQUEST) async for topic in paced]
        return DescribeTopicPartitionsResponse(topics=tuple(refused))
    if request.topics:
        names = (topic.name for topic in request.topics)
    else:
        names = (
            topic.name
            for topic in context.broker.readable_topics.listed()
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, quiet=True)
        )
    return await _describe(names, cursor, request.response_partition_limit, context)


def refuse(
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=lazy_array(lambda topic: _refused(topic.name, error_code), request.topics)
    )


async def _is_asked(
    name: str, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> bool:
    """Returns whether the request names the cursor's topic; True without a cursor or without topics."""
    if request.cursor is None or not request.topics:
        return True
    async for topic in context.pace.paced(request.topics):
        if topic.name == name:
            return True
    return False


async def _describe(
    names: Iterable[str], cursor: Cursor, limit: int, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    room = max(min(limit, PARTITIONS_MAX), 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    async for name in paced_sort(names, context.pace):
        if name < cursor.topic_name:
            continue
        start = cursor.partition_index if name == cursor.topic_name else 0
        topic = context.broker.readable_topics.get(name)
        if room == 0:
            return _answer(topics, Cursor(topic_name=name, partition_index=start))
        if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            topics.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if topic is None:
            topics.append(_refused(name, _missing_code(name)))
            continue
        end = min(start + room, len(topic.partitions))
        topics.append(await _topic(topic, range(start, end), context))
        if end < len(topic.partitions):
            return _answer(topics, Cursor(topic_name=name, partition_index=end))
        room -= max(end - start, 0)
    return _answer(topics, None)


def _answer(
    topics: Sequence[DescribeTopicPartitionsResponseTopic], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _missing_code(name: str) -> ErrorCode:
    if fault_of_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _topic(
    topic: Readable, numbers: range, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    node_id = context.broker.node.node_id
    topic = await context.broker.readable_topics.opened(topic)
    partitions = [
        _partition(topic, number, node_id) async for number in context.pace.paced(numbers)
    ]
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=context.operations_on(ResourceType.TOPIC, topic.name),
    )


def _partition(
    topic: Readable, number: int, node_id: int
) -> DescribeTopicPartitionsResponsePartition:
    described = describe_partition(number, topic.partition(number), node_id)
    return DescribeTopicPartitionsResponsePartition(
        error_code=described.error_code,
        partition_index=number,
        leader_id=described.leader_id,
        leader_epoch=described.leader_epoch,
        replica_nodes=described.replica_nodes,
        isr_nodes=described.isr_nodes,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=described.offline_replicas,
    )


def _refused(name: str, error_code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error_code, name=name, partitions=())

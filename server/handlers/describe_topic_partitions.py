"""DescribeTopicPartitions (key 75), v0.

Behaviour: the topics asked for, all of them for none, in the order of their names, each with its
partitions; as many as the client wants, at most `PARTITIONS_MAX`, and a cursor that says where to go
on. A partition whose log is offline has no leader. Eligible leader replicas are empty lists: there
are none beside the leader, and the Java client cannot take a null.
Source: KIP-966; Apache Kafka, DescribeTopicPartitionsRequestHandler.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.error_codes import ErrorCode
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from server.allowed_operations import on_topic
from server.dispatch import RequestContext
from server.handlers.metadata import describe_partition
from server.topic import Topic
from server.topic_names import fault_of_name

PARTITIONS_MAX = 2_000
"""Kafka's default of max.request.partition.size.limit."""
START = Cursor(topic_name="", partition_index=0)


async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe what fits, from the cursor on."""
    cursor = request.cursor or START
    names = _names_from(cursor.topic_name, request, context)
    if cursor.partition_index < 0 or (
        request.cursor and request.topics and cursor.topic_name not in names
    ):
        text = "The cursor is not a partition of a topic that is asked for."
        return refuse(request, context, ErrorCode.INVALID_REQUEST, text)
    return _describe(names, cursor, request.response_partition_limit, context)


def refuse(
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple(_refused(topic.name, error_code) for topic in request.topics)
    )


def _names_from(
    first: str, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Sequence[str]:
    """The names asked for, in order, from the cursor's on."""
    if request.topics:
        return sorted({topic.name for topic in request.topics if topic.name >= first})
    return [topic.name for topic in context.broker.topics.all() if topic.name >= first]


def _describe(
    names: Sequence[str], cursor: Cursor, limit: int, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    room = max(min(limit, PARTITIONS_MAX), 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        start = cursor.partition_index if name == cursor.topic_name else 0
        topic = context.broker.topics.get(name)
        if room == 0:
            return _answer(topics, Cursor(topic_name=name, partition_index=start))
        if topic is None:
            topics.append(_refused(name, _code_of_missing(name)))
            continue
        end = min(start + room, len(topic.partitions))
        topics.append(_topic(topic, range(start, end), context.broker.node.node_id))
        if end < len(topic.partitions):
            return _answer(topics, Cursor(topic_name=name, partition_index=end))
        room -= max(end - start, 0)
    return _answer(topics, None)


def _answer(
    topics: Sequence[DescribeTopicPartitionsResponseTopic], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _code_of_missing(name: str) -> ErrorCode:
    if fault_of_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(topic: Topic, numbers: range, node_id: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(_partition(topic, number, node_id) for number in numbers),
        topic_authorized_operations=on_topic(),
    )


def _partition(topic: Topic, number: int, node_id: int) -> DescribeTopicPartitionsResponsePartition:
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

"""ElectLeaders (key 43), v0-v2.

Behaviour: the one replica of a partition leads it, so ELECTION_NOT_NEEDED. A partition whose log is
offline has no leader and no other replica: PREFERRED_LEADER_NOT_AVAILABLE, or
ELIGIBLE_LEADERS_NOT_AVAILABLE where any replica would do. If all partitions are asked for, every topic
is listed, but only with the partitions that do need an election, as in Kafka.
Versions: v1 election type (KIP-460), error_code of the whole answer.
Source: KIP-183; Apache Kafka, ReplicationControlManager.java `electLeaders`.
"""

from __future__ import annotations

import enum

from protocol.error_codes import ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from server.dispatch import RequestContext
from server.topic import Topic

ERROR_SINCE = 1

# With Kafka's words, which its tools print.
NOT_NEEDED = (
    ErrorCode.ELECTION_NOT_NEEDED,
    "Leader election not needed for topic partition.",
)
NO_PREFERRED_LEADER = (
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    "The preferred leader was not available.",
)
NO_ELIGIBLE_LEADER = (
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    "Eligible topic partition leaders are not available.",
)


class ElectionType(enum.IntEnum):
    """Which replicas may become the leader. On the wire: values never change."""

    PREFERRED = 0
    UNCLEAN = 1


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer for each partition on its own; nothing is ever elected."""
    if request.election_type not in list(ElectionType):
        text = f"Unknown election type {request.election_type}"
        return refuse(request, context, ErrorCode.INVALID_REQUEST, text)
    if request.topic_partitions is None:
        results = [
            _needed_elections(topic, request.election_type)
            async for topic in context.pace.paced(context.broker.topics.all())
        ]
    else:
        results = [
            await _elections(asked, request.election_type, context)
            async for asked in context.pace.paced(request.topic_partitions)
        ]
    return ElectLeadersResponse(replica_election_results=tuple(results))


def refuse(
    request: ElectLeadersRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error_code if context.header.api_version >= ERROR_SINCE else ErrorCode.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=tuple(
                    _result(number, error_code, message) for number in asked.partitions
                ),
            )
            for asked in request.topic_partitions or ()
        ),
    )


async def _elections(
    asked: TopicPartitions, election_type: int, context: RequestContext
) -> ReplicaElectionResult:
    """The answer for the partitions that were named of one topic."""
    topic = context.broker.topics.get(asked.topic)
    results = [
        _unknown(asked.topic, number) if topic is None else _election(topic, number, election_type)
        async for number in context.pace.paced(asked.partitions)
    ]
    return ReplicaElectionResult(topic=asked.topic, partition_result=tuple(results))


def _needed_elections(topic: Topic, election_type: int) -> ReplicaElectionResult:
    """The answer for those partitions of a topic that have no leader."""
    numbers = range(len(topic.partitions))
    results = (_election(topic, number, election_type) for number in numbers)
    needed = (each for each in results if each.error_code != ErrorCode.ELECTION_NOT_NEEDED)
    return ReplicaElectionResult(topic=topic.name, partition_result=tuple(needed))


def _election(topic: Topic, number: int, election_type: int) -> PartitionResult:
    if not 0 <= number < len(topic.partitions):
        text = f"No such partition as {topic.name}-{number}"
        return _result(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if not isinstance(topic.partition(number), ErrorCode):
        return _result(number, *NOT_NEEDED)
    is_unclean = election_type == ElectionType.UNCLEAN
    return _result(number, *(NO_ELIGIBLE_LEADER if is_unclean else NO_PREFERRED_LEADER))


def _unknown(topic_name: str, number: int) -> PartitionResult:
    text = f"No such topic as {topic_name}"
    return _result(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _result(number: int, error_code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=number, error_code=error_code, error_message=message)

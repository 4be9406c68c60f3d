"""ElectLeaders (key 43), v0-v2.

Behaviour: the only replica of a partition is its leader, so the answer is ELECTION_NOT_NEEDED. A
partition whose log is offline has no leader and no other replica: PREFERRED_LEADER_NOT_AVAILABLE, or
ELIGIBLE_LEADERS_NOT_AVAILABLE for an unclean election. A request for all partitions lists every topic,
but only the partitions that need an election, as in Kafka.
Versions: v1 election type (KIP-460), error_code of the whole answer.
Source: KIP-183; Apache Kafka, ReplicationControlManager.java `electLeaders`.
"""

from __future__ import annotations

import enum

from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from server.topics.topic import Topic

ERROR_SINCE = 1

# Kafka's messages, which its tools print.
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


ELECTION_TYPES = frozenset(each.value for each in ElectionType)


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer for each partition; no leader is ever elected."""
    election_type, asked = request.election_type, request.topic_partitions
    is_known = election_type in ELECTION_TYPES
    if asked is not None:
        results = [
            await _elections(each, election_type, context)
            async for each in context.pace.paced(asked)
        ]
    elif is_known:
        results = [
            _needed_elections(topic, election_type)
            async for topic in context.pace.paced(context.broker.topics.all())
        ]
    else:
        results = []
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    return _response(code, tuple(results), context)


def refuse(
    request: ElectLeadersRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ElectLeadersResponse:
    results = lazy_array(
        lambda asked: ReplicaElectionResult(
            topic=asked.topic,
            partition_result=lazy_array(
                lambda number: _result(number, error_code, message), asked.partitions
            ),
        ),
        request.topic_partitions or (),
    )
    return _response(error_code, results, context)


def _response(
    error_code: ErrorCode, results: tuple[ReplicaElectionResult, ...], context: RequestContext
) -> ElectLeadersResponse:
    has_code = context.header.api_version >= ERROR_SINCE
    return ElectLeadersResponse(
        error_code=error_code if has_code else ErrorCode.NONE,
        replica_election_results=results,
    )


async def _elections(
    asked: TopicPartitions, election_type: int, context: RequestContext
) -> ReplicaElectionResult:
    """Returns the results for the requested partitions of one topic."""
    topic = context.broker.topics.get(asked.topic)
    results = [
        _answer(asked.topic, topic, number, election_type)
        async for number in context.pace.paced(asked.partitions)
    ]
    return ReplicaElectionResult(topic=asked.topic, partition_result=tuple(results))


def _answer(name: str, topic: Topic | None, number: int, election_type: int) -> PartitionResult:
    if election_type not in ELECTION_TYPES:
        text = f"Unknown election type {election_type}"
        return _result(number, ErrorCode.INVALID_REQUEST, text)
    if topic is None:
        return _result(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    return _election(topic, number, election_type)


def _needed_elections(topic: Topic, election_type: int) -> ReplicaElectionResult:
    """Returns the results for the partitions of a topic that have no leader."""
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


def _result(number: int, error_code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=number, error_code=error_code, error_message=message)

"""ElectLeaders (key 43) (KIP-183).

Versions: v1 election type (KIP-460), an error for the whole request · v2 flexible.
Source: ElectLeadersRequest.json, ElectLeadersResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT8, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class ElectLeadersRequest(Message):
    """The partitions to elect leaders of; null for all."""

    api_key = 43
    versions = (0, 2)
    flexible_since = 2

    election_type: int = wire(INT8, since=1, default=0)
    """0: the preferred leader; 1: any replica, if none is in sync."""
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(
        array(TopicPartitions), nullable_since=0
    )
    timeout_ms: int = wire(INT32, default=60000)


@wire_class
class PartitionResult:
    """The result of one election."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@wire_class
class ReplicaElectionResult:
    """The elections of one topic's partitions."""

    topic: str = wire(STRING)
    partition_result: tuple[PartitionResult, ...] = wire(array(PartitionResult))


@wire_class
class ElectLeadersResponse(Message):
    """A result for each partition; if all were requested, only for those that needed an election."""

    api_key = 43
    versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=1, default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(array(ReplicaElectionResult))

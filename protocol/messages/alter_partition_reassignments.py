"""AlterPartitionReassignments (key 45): change the replicas of partitions (KIP-455).

Versions: v1 whether the replication factor may change (KIP-860).
Source: AlterPartitionReassignmentsRequest.json, AlterPartitionReassignmentsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import BOOL, INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class ReassignablePartition:
    """The new replicas of one partition; null cancels the reassignment in progress."""

    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] | None = wire(array(INT32), nullable_since=0, default=None)


@wire_class
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ReassignablePartition, ...] = wire(array(ReassignablePartition))


@wire_class
class AlterPartitionReassignmentsRequest(Message):
    """The new replicas of partitions."""

    api_key = 45
    versions = (0, 1)
    flexible_since = 0

    timeout_ms: int = wire(INT32, default=60000)
    allow_replication_factor_change: bool = wire(BOOL, since=1, default=True)
    topics: tuple[ReassignableTopic, ...] = wire(array(ReassignableTopic))


@wire_class
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)


@wire_class
class ReassignableTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[ReassignablePartitionResponse, ...] = wire(
        array(ReassignablePartitionResponse)
    )


@wire_class
class AlterPartitionReassignmentsResponse(Message):
    """A result for each partition."""

    api_key = 45
    versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    allow_replication_factor_change: bool = wire(BOOL, since=1, default=True, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    responses: tuple[ReassignableTopicResponse, ...] = wire(array(ReassignableTopicResponse))

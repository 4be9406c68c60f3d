"""ListPartitionReassignments (key 46), v0 (KIP-455).

Source: ListPartitionReassignmentsRequest.json, ListPartitionReassignmentsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@wire_class
class ListPartitionReassignmentsRequest(Message):
    """The partitions to list; null for all."""

    api_key = 46
    versions = (0, 0)
    flexible_since = 0

    timeout_ms: int = wire(INT32, default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        array(ListPartitionReassignmentsTopics), nullable_since=0, default=None
    )


@wire_class
class OngoingPartitionReassignment:
    """A partition that is moving."""

    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] = wire(array(INT32))
    adding_replicas: tuple[int, ...] = wire(array(INT32))
    removing_replicas: tuple[int, ...] = wire(array(INT32))


@wire_class
class OngoingTopicReassignment:
    """The partitions of one topic that are moving."""

    name: str = wire(STRING)
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(array(OngoingPartitionReassignment))


@wire_class
class ListPartitionReassignmentsResponse(Message):
    """The partitions that are moving."""

    api_key = 46
    versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    topics: tuple[OngoingTopicReassignment, ...] = wire(array(OngoingTopicReassignment))

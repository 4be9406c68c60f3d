"""OffsetDelete (key 47): delete a group's committed offsets for some partitions (KIP-496).

Source: OffsetDeleteRequest.json, OffsetDeleteResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, NEVER, STRING, Message, array, wire, wire_class


@wire_class
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = wire(INT32)


@wire_class
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(array(OffsetDeleteRequestPartition))


@wire_class
class OffsetDeleteRequest(Message):
    """The committed offsets to delete."""

    api_key = 47
    versions = (0, 0)
    flexible_since = NEVER

    group_id: str = wire(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(array(OffsetDeleteRequestTopic))


@wire_class
class OffsetDeleteResponsePartition:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@wire_class
class OffsetDeleteResponseTopic:
    """The results for one topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(
        array(OffsetDeleteResponsePartition)
    )


@wire_class
class OffsetDeleteResponse(Message):
    """The result for each offset."""

    api_key = 47
    versions = (0, 0)
    flexible_since = NEVER

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32, default=0, ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(
        array(OffsetDeleteResponseTopic), default=()
    )

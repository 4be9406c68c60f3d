"""ListOffsets (key 2): look up offsets by timestamp.

Timestamps below 0 have special meanings: -1 the end, -2 the start, -3 (v7, KIP-734) the
record with the largest timestamp, -4 (v8), -5 (v9) and -6 (v11) about tiered storage. "No such
offset" is offset -1 and timestamp -1, without an error.
Versions: v2 isolation_level · v4 leader epochs (KIP-320) · v6 flexible · v10 timeout_ms (KIP-1075).
Source: ListOffsetsRequest.json, ListOffsetsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class ListOffsetsPartition:
    """The lookup in one partition."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1, ignorable=True)
    """-1: the client does not know it, so the broker does not check it."""
    timestamp: int = wire(INT64)


@wire_class
class ListOffsetsTopic:
    """The lookups in one topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire(array(ListOffsetsPartition))


@wire_class
class ListOffsetsRequest(Message):
    """The timestamps to look up."""

    api_key = 2
    versions = (1, 11)
    flexible_since = 6

    replica_id: int = wire(INT32)
    """-1 from consumers."""
    isolation_level: int = wire(INT8, since=2, default=0)
    """0: read uncommitted, 1: read committed, for which the end is the last stable offset."""
    topics: tuple[ListOffsetsTopic, ...] = wire(array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, since=10, default=0, ignorable=True)
    """The time limit for lookups in tiered storage."""


@wire_class
class ListOffsetsPartitionResponse:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, since=1, default=-1)
    offset: int = wire(INT64, since=1, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@wire_class
class ListOffsetsTopicResponse:
    """The results for one topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(array(ListOffsetsPartitionResponse))


@wire_class
class ListOffsetsResponse(Message):
    """The offsets found."""

    api_key = 2
    versions = (1, 11)
    flexible_since = 6

    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(array(ListOffsetsTopicResponse))

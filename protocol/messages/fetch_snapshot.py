"""FetchSnapshot (key 59): read bytes of a snapshot of the metadata (KIP-630).

Versions: v1 the follower's directory id, the leaders' endpoints (KIP-853).
Source: FetchSnapshotRequest.json, FetchSnapshotResponse.json.
"""

from __future__ import annotations

import uuid

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Message,
    Payload,
    array,
    struct,
    wire,
    wire_class,
)


@wire_class
class SnapshotId:
    """A snapshot of the records below `end_offset`; `epoch` is that of the last one."""

    end_offset: int = wire(INT64)
    epoch: int = wire(INT32)


@wire_class
class PartitionSnapshot:
    """The position to read in one snapshot."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32)
    """-1: the follower does not know it, so the leader does not check it."""
    snapshot_id: SnapshotId = wire(struct(SnapshotId))
    position: int = wire(INT64)
    replica_directory_id: uuid.UUID = wire(UUID, since=1, default=ZERO_UUID, tag=0, ignorable=True)
    """The follower's directory."""


@wire_class
class TopicSnapshot:
    """The positions to read in the snapshots of one topic."""

    name: str = wire(STRING)
    partitions: tuple[PartitionSnapshot, ...] = wire(array(PartitionSnapshot))


@wire_class
class FetchSnapshotRequest(Message):
    """The positions to read, and the most bytes to answer."""

    api_key = 59
    versions = (0, 1)
    flexible_since = 0

    cluster_id: str | None = wire(STRING, nullable_since=0, default=None, tag=0)
    replica_id: int = wire(INT32, default=-1)
    max_bytes: int = wire(INT32, default=0x7FFFFFFF)
    topics: tuple[TopicSnapshot, ...] = wire(array(TopicSnapshot))


@wire_class
class LeaderIdAndEpoch:
    """The partition's leader."""

    leader_id: int = wire(INT32, default=0)
    leader_epoch: int = wire(INT32, default=0)


NO_LEADER = LeaderIdAndEpoch()
"""The answer names no leader. One object, because the encoder recognizes it by its identity."""


@wire_class
class SnapshotPart:
    """Bytes of one snapshot."""

    index: int = wire(INT32)
    """The partition."""
    error_code: int = wire(INT16)
    snapshot_id: SnapshotId = wire(struct(SnapshotId))
    current_leader: LeaderIdAndEpoch = wire(struct(LeaderIdAndEpoch), default=NO_LEADER, tag=0)
    size: int = wire(INT64)
    """Of the whole snapshot."""
    position: int = wire(INT64)
    unaligned_records: Payload | None = wire(RECORDS)
    """Bytes of its file."""


@wire_class
class TopicSnapshotParts:
    """Bytes of the snapshots of one topic."""

    name: str = wire(STRING)
    partitions: tuple[SnapshotPart, ...] = wire(array(SnapshotPart))


@wire_class
class NodeEndpoint:
    """The address of a leader."""

    node_id: int = wire(INT32, since=1)
    host: str = wire(STRING, since=1)
    port: int = wire(UINT16, since=1)


@wire_class
class FetchSnapshotResponse(Message):
    """The bytes read."""

    api_key = 59
    versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0, ignorable=True)
    error_code: int = wire(INT16)
    topics: tuple[TopicSnapshotParts, ...] = wire(array(TopicSnapshotParts))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), since=1, default=(), tag=0)
    """The leaders that `current_leader` names."""

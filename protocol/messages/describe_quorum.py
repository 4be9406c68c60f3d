"""DescribeQuorum (key 55) (KIP-595).

Versions: v1 when each replica fetched (KIP-836) · v2 error messages, directories, nodes (KIP-853).
Source: DescribeQuorumRequest.json, DescribeQuorumResponse.json.
"""

from __future__ import annotations

import uuid

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class AskedPartition:
    """One partition."""

    partition_index: int = wire(INT32)


@wire_class
class AskedTopic:
    """Partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: tuple[AskedPartition, ...] = wire(array(AskedPartition))


@wire_class
class DescribeQuorumRequest(Message):
    """The partitions whose quorum to describe: that of the metadata."""

    api_key = 55
    versions = (0, 2)
    flexible_since = 0

    topics: tuple[AskedTopic, ...] = wire(array(AskedTopic))


@wire_class
class ReplicaState:
    """The state of one replica."""

    replica_id: int = wire(INT32)
    replica_directory_id: uuid.UUID = wire(UUID, since=2, default=ZERO_UUID)
    log_end_offset: int = wire(INT64)
    last_fetch_timestamp: int = wire(INT64, since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire(INT64, since=1, default=-1, ignorable=True)


@wire_class
class PartitionData:
    """The quorum of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=2, nullable_since=2, default="", ignorable=True)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    high_watermark: int = wire(INT64)
    current_voters: tuple[ReplicaState, ...] = wire(array(ReplicaState))
    observers: tuple[ReplicaState, ...] = wire(array(ReplicaState))


@wire_class
class TopicData:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: tuple[PartitionData, ...] = wire(array(PartitionData))


@wire_class
class Listener:
    """The address of a node."""

    name: str = wire(STRING, since=2)
    host: str = wire(STRING, since=2)
    port: int = wire(UINT16, since=2)


@wire_class
class Node:
    """One node of the quorum."""

    node_id: int = wire(INT32, since=2)
    listeners: tuple[Listener, ...] = wire(array(Listener), since=2)


@wire_class
class DescribeQuorumResponse(Message):
    """The quorums, and the nodes in them."""

    api_key = 55
    versions = (0, 2)
    flexible_since = 0

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=2, nullable_since=2, default="", ignorable=True)
    topics: tuple[TopicData, ...] = wire(array(TopicData))
    nodes: tuple[Node, ...] = wire(array(Node), since=2, default=())

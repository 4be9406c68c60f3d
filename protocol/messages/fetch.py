"""Fetch (key 1): read record batches.

Versions: v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch (KIP-320) ·
v11 rack_id (KIP-392) · v12 flexible, last_fetched_epoch (KIP-595) · v13 topic ids (KIP-516) ·
v15 replica_state (KIP-903) · v16 node_endpoints (KIP-951) · v17 replica_directory_id (KIP-853) ·
v18 the replica's high_watermark (KIP-1166).
Source: FetchRequest.json, FetchResponse.json.
"""

from __future__ import annotations

import uuid

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    Payload,
    array,
    struct,
    wire,
    wire_class,
)

IDS_SINCE = 13
"""The first version in which topics have ids instead of names."""

HIGH_WATERMARK_NOT_SENT = 0x7FFFFFFFFFFFFFFF
"""The value from a replica that does not send its high watermark, and from consumers."""


@wire_class
class FetchPartition:
    """The position to read in one partition."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    """-1: the client does not know it, so the broker does not check it."""
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    """The follower's log start offset; -1 from consumers."""
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: uuid.UUID = wire(UUID, since=17, default=ZERO_UUID, tag=0, ignorable=True)
    """The follower's log directory; zero from consumers."""
    high_watermark: int = wire(
        INT64, since=18, default=HIGH_WATERMARK_NOT_SENT, tag=1, ignorable=True
    )
    """The follower's high watermark."""


@wire_class
class FetchTopic:
    """The positions to read in one topic."""

    topic: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(array(FetchPartition))


@wire_class
class ForgottenTopic:
    """Partitions to remove from a session."""

    topic: str = wire(STRING, since=7, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: tuple[int, ...] = wire(array(INT32), since=7)


@wire_class
class ReplicaState:
    """The follower that sends the request."""

    replica_id: int = wire(INT32, since=15, default=-1)
    """-1 from consumers."""
    replica_epoch: int = wire(INT64, since=15, default=-1)


NOT_A_REPLICA = ReplicaState()
"""The request comes from a consumer. One object, because the encoder recognizes it by its identity."""


@wire_class
class FetchRequest(Message):
    """The positions to read, the bounds on size, and how long to wait."""

    api_key = 1
    versions = (4, 18)
    flexible_since = 12

    cluster_id: str | None = wire(
        STRING, since=12, nullable_since=12, default=None, tag=0, ignorable=True
    )
    replica_id: int = wire(INT32, until=14, default=-1)
    """-1 from consumers."""
    replica_state: ReplicaState = wire(struct(ReplicaState), since=15, default=NOT_A_REPLICA, tag=1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, since=3, default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = wire(INT8, since=4, default=0, ignorable=True)
    """0: read uncommitted, 1: read committed."""
    session_id: int = wire(INT32, since=7, default=0, ignorable=True)
    session_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(
        array(ForgottenTopic), since=7, default=()
    )
    rack_id: str = wire(STRING, since=11, default="", ignorable=True)


@wire_class
class EpochEndOffset:
    """The point at which the requesting follower's log diverges from ours."""

    epoch: int = wire(INT32, since=12, default=-1)
    end_offset: int = wire(INT64, since=12, default=-1)


NOT_DIVERGING = EpochEndOffset()
"""The logs agree. One object, because the encoder recognizes it by its identity."""


@wire_class
class LeaderIdAndEpoch:
    """The partition's leader, for a client that sent the request to another broker."""

    leader_id: int = wire(INT32, since=12, default=-1)
    leader_epoch: int = wire(INT32, since=12, default=-1)


@wire_class
class SnapshotId:
    """The snapshot that a follower must load if it is behind the log's start."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@wire_class
class AbortedTransaction:
    """A transaction whose records in the answer the client must skip."""

    producer_id: int = wire(INT64, since=4)
    first_offset: int = wire(INT64, since=4)


@wire_class
class PartitionData:
    """The records read from one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, since=4, default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(
        struct(EpochEndOffset), since=12, default=NOT_DIVERGING, tag=0
    )
    current_leader: LeaderIdAndEpoch = wire(
        struct(LeaderIdAndEpoch), since=12, default=LeaderIdAndEpoch(), tag=1
    )
    snapshot_id: SnapshotId = wire(struct(SnapshotId), since=12, default=SnapshotId(), tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        array(AbortedTransaction), since=4, nullable_since=4, default=(), ignorable=True
    )
    preferred_read_replica: int = wire(INT32, since=11, default=-1)
    records: Payload | None = wire(RECORDS, nullable_since=0)
    """Whole batches; for sending they may be regions of segment files."""


@wire_class
class FetchableTopicResponse:
    """The records read from one topic."""

    topic: str = wire(STRING, until=12, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=13, default=ZERO_UUID, ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(array(PartitionData))


@wire_class
class NodeEndpoint:
    """The address of a leader."""

    node_id: int = wire(INT32, since=16)
    host: str = wire(STRING, since=16)
    port: int = wire(INT32, since=16)
    rack: str | None = wire(STRING, since=16, nullable_since=16, default=None)


@wire_class
class FetchResponse(Message):
    """The records read."""

    api_key = 1
    versions = (4, 18)
    flexible_since = 12

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, since=7, default=0, ignorable=True)
    session_id: int = wire(INT32, since=7, default=0)
    """0: there is no session; the next request names all its partitions again."""
    responses: tuple[FetchableTopicResponse, ...] = wire(array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(
        array(NodeEndpoint), since=16, default=(), tag=0
    )
    """The leaders that `current_leader` names."""

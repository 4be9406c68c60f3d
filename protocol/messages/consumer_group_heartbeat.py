"""ConsumerGroupHeartbeat (key 68): a member of a consumer group is alive, and gets its assignment.

Versions: v1 subscribed_topic_regex, and the client makes its member id (KIP-1082).
Source: ConsumerGroupHeartbeatRequest.json, ConsumerGroupHeartbeatResponse.json; KIP-848.
"""

from __future__ import annotations

import uuid

from protocol.wire.schema import (
    INT16,
    INT32,
    STRING,
    UUID,
    Message,
    array,
    struct,
    wire,
    wire_class,
)


@wire_class
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid.UUID = wire(UUID)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class ConsumerGroupHeartbeatRequest(Message):
    """A member's heartbeat; fields that have not changed since its last request may be left out."""

    api_key = 68
    versions = (0, 1)
    flexible_since = 0

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    """0: to join; -1: to leave; -2: to leave for a while, as a static member."""
    instance_id: str | None = wire(STRING, nullable_since=0, default=None)
    rack_id: str | None = wire(STRING, nullable_since=0, default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    """Time limit for the member to give partitions up; -1: as before."""
    subscribed_topic_names: tuple[str, ...] | None = wire(
        array(STRING), nullable_since=0, default=None
    )
    subscribed_topic_regex: str | None = wire(STRING, since=1, nullable_since=1, default=None)
    server_assignor: str | None = wire(STRING, nullable_since=0, default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(
        array(TopicPartitions), nullable_since=0, default=None
    )
    """The partitions that the member has."""


@wire_class
class Assignment:
    """The partitions that a member should have."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))


@wire_class
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch, and its assignment if that has changed."""

    api_key = 68
    versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    member_id: str | None = wire(STRING, nullable_since=0, default=None)
    member_epoch: int = wire(INT32, default=0)
    heartbeat_interval_ms: int = wire(INT32, default=0)
    assignment: Assignment | None = wire(struct(Assignment), nullable_since=0, default=None)

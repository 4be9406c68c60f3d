"""ConsumerGroupDescribe (key 69): groups of the consumer protocol, with their members.

Versions: v1 member_type (KIP-1099).
Source: ConsumerGroupDescribeRequest.json, ConsumerGroupDescribeResponse.json; KIP-848.
"""

from __future__ import annotations

import uuid

from protocol.wire.schema import (
    BOOL,
    INT8,
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

NOT_ASKED = -(1 << 31)
"""The value of authorized operations if the client did not ask for them."""


@wire_class
class ConsumerGroupDescribeRequest(Message):
    """The groups to describe."""

    api_key = 69
    versions = (0, 1)
    flexible_since = 0

    group_ids: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL)


@wire_class
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid.UUID = wire(UUID)
    topic_name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class Assignment:
    """Partitions."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))


@wire_class
class Member:
    """A member."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable_since=0, default=None)
    rack_id: str | None = wire(STRING, nullable_since=0, default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable_since=0, default=None)
    assignment: Assignment = wire(struct(Assignment))
    """The partitions that it has."""
    target_assignment: Assignment = wire(struct(Assignment))
    """The partitions that it should have."""
    member_type: int = wire(INT8, since=1, default=-1, ignorable=True)
    """-1: unknown; 0: it uses the classic protocol; 1: the consumer protocol."""


@wire_class
class DescribedGroup:
    """A group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: tuple[Member, ...] = wire(array(Member))
    authorized_operations: int = wire(INT32, default=NOT_ASKED)


@wire_class
class ConsumerGroupDescribeResponse(Message):
    """The groups."""

    api_key = 69
    versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup))

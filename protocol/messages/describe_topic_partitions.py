"""DescribeTopicPartitions (key 75), v0 (KIP-966).

Source: DescribeTopicPartitionsRequest.json, DescribeTopicPartitionsResponse.json.
"""

from __future__ import annotations

from uuid import UUID as TopicId

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    BOOL,
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
class TopicRequest:
    """A topic to describe."""

    name: str = wire(STRING)


@wire_class
class Cursor:
    """The position at which a partial answer continues."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@wire_class
class DescribeTopicPartitionsRequest(Message):
    """Topics to describe; an empty array means all of them."""

    api_key = 75
    versions = (0, 0)
    flexible_since = 0

    topics: tuple[TopicRequest, ...] = wire(array(TopicRequest))
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: Cursor | None = wire(struct(Cursor), nullable_since=0, default=None)
    """The first topic and partition to describe."""


@wire_class
class DescribeTopicPartitionsResponsePartition:
    """One partition."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        array(INT32), nullable_since=0, default=None
    )
    """Null, the default, ends the Java client's describeTopics with a NullPointerException."""
    last_known_elr: tuple[int, ...] | None = wire(array(INT32), nullable_since=0, default=None)
    """As above."""
    offline_replicas: tuple[int, ...] = wire(array(INT32), ignorable=True)


@wire_class
class DescribeTopicPartitionsResponseTopic:
    """One topic, with those of its partitions that fit."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable_since=0)
    topic_id: TopicId = wire(UUID, default=ZERO_UUID, ignorable=True)
    is_internal: bool = wire(BOOL, default=False, ignorable=True)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = wire(INT32, default=-(2**31))
    """One bit per operation; the default means that they are not known."""


@wire_class
class DescribeTopicPartitionsResponse(Message):
    """The topics in the order of their names."""

    api_key = 75
    versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = wire(INT32, default=0, ignorable=True)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(
        array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = wire(struct(Cursor), nullable_since=0, default=None)
    """The position at which the next request should continue; null: the answer is complete."""

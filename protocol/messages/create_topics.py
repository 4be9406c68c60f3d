"""CreateTopics (key 19).

Versions: v4 partitions and replication factor may be -1, the broker's default (KIP-464) ·
v5 flexible, the response has the topic's configuration (KIP-525) · v7 topic ids.
Source: CreateTopicsRequest.json, CreateTopicsResponse.json.
"""

from __future__ import annotations

from uuid import UUID as TopicId

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class CreatableReplicaAssignment:
    """The brokers for one partition, the preferred leader first."""

    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(array(INT32))


@wire_class
class CreatableTopicConfig:
    """One configuration entry; a null value means the default."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable_since=0)


@wire_class
class CreatableTopic:
    """A topic to create."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    """-1: as in `assignments`, otherwise the broker's default."""
    replication_factor: int = wire(INT16)
    """-1: as in `assignments`, otherwise the broker's default."""
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = wire(array(CreatableTopicConfig))


@wire_class
class CreateTopicsRequest(Message):
    """Topics to create."""

    api_key = 19
    versions = (2, 7)
    flexible_since = 5

    topics: tuple[CreatableTopic, ...] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, since=1, default=False)
    """True: report what would happen, and create nothing."""


@wire_class
class CreatableTopicConfigs:
    """One configuration entry of a created topic."""

    name: str = wire(STRING, since=5)
    value: str | None = wire(STRING, since=5, nullable_since=5)
    read_only: bool = wire(BOOL, since=5)
    config_source: int = wire(INT8, since=5, default=-1, ignorable=True)
    """As in DescribeConfigs."""
    is_sensitive: bool = wire(BOOL, since=5)


@wire_class
class CreatableTopicResult:
    """The result for one topic."""

    name: str = wire(STRING)
    topic_id: TopicId = wire(UUID, since=7, default=ZERO_UUID, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, nullable_since=0, default="", ignorable=True)
    topic_config_error_code: int = wire(INT16, since=5, default=0, tag=0, ignorable=True)
    """The error if `configs` is null."""
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        array(CreatableTopicConfigs), since=5, nullable_since=5, default=(), ignorable=True
    )


@wire_class
class CreateTopicsResponse(Message):
    """The result for each topic."""

    api_key = 19
    versions = (2, 7)
    flexible_since = 5

    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = wire(array(CreatableTopicResult))

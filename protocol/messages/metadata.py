"""Metadata (key 3): brokers, topics, and the leaders of partitions.

Versions: v1 null topics means all of them (in v0 an empty list does) ·
v4 allow_auto_topic_creation · v7 leader epochs · v8 authorized operations (KIP-430) · v9 flexible ·
v10 topic ids (KIP-516) · v12 topics by id · v13 error_code of the whole answer (KIP-1102).
Source: MetadataRequest.json, MetadataResponse.json.
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
    wire,
    wire_class,
)

OPERATIONS_NOT_ASKED = -0x80000000
"""The bit field of authorized operations if the client did not ask for it."""


@wire_class
class MetadataRequestTopic:
    """A requested topic, by name or by id."""

    topic_id: TopicId = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    name: str | None = wire(STRING, nullable_since=10)


@wire_class
class MetadataRequest(Message):
    """The topics to describe."""

    api_key = 3
    versions = (0, 13)
    flexible_since = 9

    topics: tuple[MetadataRequestTopic, ...] | None = wire(
        array(MetadataRequestTopic), nullable_since=1
    )
    """None: all topics; an empty tuple: none, in v0 all."""
    allow_auto_topic_creation: bool = wire(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(BOOL, since=8, default=False)


@wire_class
class MetadataResponseBroker:
    """A broker and its address."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, nullable_since=1, default=None, ignorable=True)


@wire_class
class MetadataResponsePartition:
    """A partition and its replicas."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    offline_replicas: tuple[int, ...] = wire(array(INT32), since=5, default=(), ignorable=True)


@wire_class
class MetadataResponseTopic:
    """A topic, or the error for it."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable_since=12)
    topic_id: TopicId = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    is_internal: bool = wire(BOOL, since=1, default=False, ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(INT32, since=8, default=OPERATIONS_NOT_ASKED)


@wire_class
class MetadataResponse(Message):
    """The cluster as this broker sees it."""

    api_key = 3
    versions = (0, 13)
    flexible_since = 9

    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, since=2, nullable_since=2, default=None, ignorable=True)
    controller_id: int = wire(INT32, since=1, default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = wire(array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(
        INT32, since=8, until=10, default=OPERATIONS_NOT_ASKED
    )
    error_code: int = wire(INT16, since=13, default=0, ignorable=True)

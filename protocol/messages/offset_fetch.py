"""OffsetFetch (key 9): return the committed offsets of groups.

Versions: v2 every topic, error_code · v5 committed_leader_epoch (KIP-320) · v6 flexible · v7
require_stable (KIP-447) · v8 several groups (KIP-709) · v9 member_id, member_epoch (KIP-848) · v10
topics by id.
Source: OffsetFetchRequest.json, OffsetFetchResponse.json.
"""

from __future__ import annotations

import uuid

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    array,
    wire,
    wire_class,
)


@wire_class
class OffsetFetchRequestTopic:
    """Partitions of one topic, up to v7."""

    name: str = wire(STRING, until=7, default="")
    partition_indexes: tuple[int, ...] = wire(array(INT32), until=7, default=())


@wire_class
class OffsetFetchRequestTopics:
    """Partitions of one topic, from v8 on."""

    name: str = wire(STRING, since=8, until=9, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partition_indexes: tuple[int, ...] = wire(array(INT32), since=8, default=())


@wire_class
class OffsetFetchRequestGroup:
    """The committed offsets to return for one group."""

    group_id: str = wire(STRING, since=8, default="")
    member_id: str | None = wire(STRING, since=9, nullable_since=9, default=None, ignorable=True)
    member_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(
        array(OffsetFetchRequestTopics), since=8, nullable_since=8, default=()
    )
    """None: all topics for which it has committed offsets."""


@wire_class
class OffsetFetchRequest(Message):
    """The committed offsets to return: for one group up to v7, for several from v8 on."""

    api_key = 9
    versions = (1, 10)
    flexible_since = 6

    group_id: str = wire(STRING, until=7, default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(
        array(OffsetFetchRequestTopic), until=7, nullable_since=2, default=()
    )
    """None: all topics for which it has committed offsets."""
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(
        array(OffsetFetchRequestGroup), since=8, default=()
    )
    require_stable: bool = wire(BOOL, since=7, default=False)
    """Whether to refuse offsets of an open transaction as unstable."""


@wire_class
class OffsetFetchResponsePartition:
    """One partition, up to v7."""

    partition_index: int = wire(INT32, until=7, default=0)
    committed_offset: int = wire(INT64, until=7, default=0)
    committed_leader_epoch: int = wire(INT32, since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, until=7, nullable_since=0, default="")
    error_code: int = wire(INT16, until=7, default=0)


@wire_class
class OffsetFetchResponseTopic:
    """One topic's partitions, up to v7."""

    name: str = wire(STRING, until=7, default="")
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(
        array(OffsetFetchResponsePartition), until=7, default=()
    )


@wire_class
class OffsetFetchResponsePartitions:
    """One partition, from v8 on."""

    partition_index: int = wire(INT32, since=8, default=0)
    committed_offset: int = wire(INT64, since=8, default=0)
    """-1: the group has no committed offset."""
    committed_leader_epoch: int = wire(INT32, since=8, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, since=8, nullable_since=8, default="")
    error_code: int = wire(INT16, since=8, default=0)


@wire_class
class OffsetFetchResponseTopics:
    """One topic's partitions, from v8 on."""

    name: str = wire(STRING, since=8, until=9, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire(
        array(OffsetFetchResponsePartitions), since=8, default=()
    )


@wire_class
class OffsetFetchResponseGroup:
    """One group's offsets."""

    group_id: str = wire(STRING, since=8, default="")
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(
        array(OffsetFetchResponseTopics), since=8, default=()
    )
    error_code: int = wire(INT16, since=8, default=0)


@wire_class
class OffsetFetchResponse(Message):
    """The requested offsets."""

    api_key = 9
    versions = (1, 10)
    flexible_since = 6

    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(
        array(OffsetFetchResponseTopic), until=7, default=()
    )
    error_code: int = wire(INT16, since=2, until=7, default=0, ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(
        array(OffsetFetchResponseGroup), since=8, default=()
    )

"""OffsetCommit (key 8): commit the offsets of a group.

Versions: v2-v4 retention_time_ms · v6 committed_leader_epoch (KIP-320) · v7 group_instance_id
(KIP-345) · v8 flexible · v9 consumer groups (KIP-848) · v10 topics by id.
Source: OffsetCommitRequest.json, OffsetCommitResponse.json.
"""

from __future__ import annotations

import uuid

from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
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

NO_RETENTION_TIME = -1
"""The broker's own retention applies."""


@wire_class
class OffsetCommitRequestPartition:
    """The offset to commit for one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable_since=0)


@wire_class
class OffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: str = wire(STRING, until=9, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(array(OffsetCommitRequestPartition))


@wire_class
class OffsetCommitRequest(Message):
    """The offsets to commit for a group."""

    api_key = 8
    versions = (2, 10)
    flexible_since = 8

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, since=1, default=-1, ignorable=True)
    """-1: the client that commits is not a member."""
    member_id: str = wire(STRING, since=1, default="", ignorable=True)
    group_instance_id: str | None = wire(STRING, since=7, nullable_since=7, default=None)
    retention_time_ms: int = wire(
        INT64, since=2, until=4, default=NO_RETENTION_TIME, ignorable=True
    )
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(array(OffsetCommitRequestTopic))


@wire_class
class OffsetCommitResponsePartition:
    """The result for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@wire_class
class OffsetCommitResponseTopic:
    """The results for one topic."""

    name: str = wire(STRING, until=9, default="", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, since=10, default=ZERO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(
        array(OffsetCommitResponsePartition)
    )


@wire_class
class OffsetCommitResponse(Message):
    """The result for each offset."""

    api_key = 8
    versions = (2, 10)
    flexible_since = 8

    throttle_time_ms: int = wire(INT32, since=3, default=0, ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(array(OffsetCommitResponseTopic))

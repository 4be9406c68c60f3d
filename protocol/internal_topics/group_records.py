"""Keys and values of `__consumer_offsets`: groups and their committed offsets, in Kafka's format.

    key    type: int16 | the fields of that key                 never flexible
    value  version: int16 | the fields in that version          absent in a tombstone

    type    key                                      value (versions read; version written)
    0, 1    OffsetCommitKey                          OffsetCommitValue (0-4; 4, or 1 with an expiry)
    2       GroupMetadataKey                         GroupMetadataValue (0-4; 3)
    3       ConsumerGroupMetadataKey                 ConsumerGroupMetadataValue (0)
    4       ConsumerGroupPartitionMetadataKey        ConsumerGroupPartitionMetadataValue (0)
    5       ConsumerGroupMemberMetadataKey           ConsumerGroupMemberMetadataValue (0)
    6       ConsumerGroupTargetAssignmentMetadataKey ConsumerGroupTargetAssignmentMetadataValue (0)
    7       ConsumerGroupTargetAssignmentMemberKey   ConsumerGroupTargetAssignmentMemberValue (0)
    8       ConsumerGroupCurrentMemberAssignmentKey  ConsumerGroupCurrentMemberAssignmentValue (0)
    16      ConsumerGroupRegularExpressionKey        ConsumerGroupRegularExpressionValue (0)

Types 3 to 16 are KIP-848's (`consumer_group_records.py`). Type 0 is read only. Other types (share and
streams groups) and later versions raise `UnknownRecord`, and readers leave such a record in place.

Source: Apache Kafka 4.3, group-coordinator/src/main/resources/common/message,
CoordinatorRecordSerde.java; KIP-211, KIP-848, KIP-915.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from protocol.internal_topics.coordinator_records import (
    CoordinatorKey,
    CoordinatorRecord,
    CoordinatorValue,
    UnknownRecordType,
    key_type,
    read_key,
    read_value,
)
from protocol.wire.primitives import ZERO_UUID
from protocol.wire.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    UUID,
    Payload,
    array,
    wire,
    wire_class,
)

LEGACY_OFFSET_COMMIT, OFFSET_COMMIT = 0, 1
"""Types of keys with the same layout."""

NO_TIMESTAMP = -1


class GroupKey(CoordinatorKey):
    """A record's key: the subject of the record."""

    __slots__ = ()


class GroupValue(CoordinatorValue):
    """A record's value: the new state of its subject."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GroupRecord(CoordinatorRecord):
    """One record; without a value it is a tombstone."""

    key: GroupKey
    value: GroupValue | None


# Offsets.


@wire_class
class OffsetCommitKey(GroupKey):
    """A group's offset in one partition."""

    record_type = OFFSET_COMMIT

    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@wire_class
class OffsetCommitValue(GroupValue):
    """A committed offset."""

    versions = (0, 4)
    flexible_since = 4

    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, since=3, default=-1, ignorable=True)
    """The leader epoch of the record before the offset; -1 if the client did not send it."""
    metadata: str = wire(STRING)
    """The client's own text."""
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, since=1, until=1, default=NO_TIMESTAMP, ignorable=True)
    """Time of expiry, if the commit had a retention time (OffsetCommit v2-v4)."""
    topic_id: uuid.UUID = wire(UUID, since=4, tag=0, default=ZERO_UUID, ignorable=True)
    """Zero if the commit named the topic by its name."""

    @property
    def written_version(self) -> int:
        return 4 if self.expire_timestamp == NO_TIMESTAMP else 1


# Groups of the classic protocol.


@wire_class
class GroupMetadataKey(GroupKey):
    """A group."""

    record_type = 2

    group: str = wire(STRING)


@wire_class
class MemberMetadata:
    """A member, as of the last assignment."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(
        STRING, since=3, nullable_since=3, default=None, ignorable=True
    )
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = wire(INT32)
    subscription: Payload = wire(BYTES)
    """Its metadata for the selected protocol."""
    assignment: Payload = wire(BYTES)


@wire_class
class GroupMetadataValue(GroupValue):
    """A generation and its assignment."""

    versions = (0, 4)
    flexible_since = 4

    protocol_type: str = wire(STRING)
    """Empty if the group only commits offsets."""
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable_since=0)
    leader: str | None = wire(STRING, nullable_since=0)
    current_state_timestamp: int = wire(INT64, since=2, default=NO_TIMESTAMP, ignorable=True)
    """Time at which the group entered its state, in milliseconds since the epoch."""
    members: tuple[MemberMetadata, ...] = wire(array(MemberMetadata))

    @property
    def written_version(self) -> int:
        return 3

    @property
    def payload_bytes(self) -> int:
        return sum(len(each.subscription) + len(each.assignment) for each in self.members)


RECORD_TYPES: dict[int, tuple[type[GroupKey], type[GroupValue]]] = {
    LEGACY_OFFSET_COMMIT: (OffsetCommitKey, OffsetCommitValue),
    OFFSET_COMMIT: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
"""Key and value classes by the key's type, without KIP-848's. On disk: types never change."""


def read_record(key: bytes, value: bytes | None) -> GroupRecord:
    """Decode a record.

    Raises:
        UnknownRecordType, UnknownRecord: a later release wrote it.
        DecodeError: the bytes are not such a record.
    """
    key_class, value_class = record_classes(key_type(key))
    return GroupRecord(
        read_key(key_class, key), None if value is None else read_value(value_class, value)
    )


def record_classes(record_type: int) -> tuple[type[GroupKey], type[GroupValue]]:
    """Returns the classes of key and value for a type.

    Raises:
        UnknownRecordType: only a later release knows the type.
    """
    found = RECORD_TYPES.get(record_type)
    if found is None:
        # Not imported at the top, because it imports this module.
        from protocol.internal_topics import consumer_group_records

        found = consumer_group_records.RECORD_TYPES.get(record_type)
    if found is None:
        raise UnknownRecordType(f"key of type {record_type}")
    return found

"""The records of `__consumer_offsets` for groups of the consumer protocol (KIP-848).

`group_records.py` reads and writes the frame around them, and imports this module for the first one.
Source: Apache Kafka 4.3, group-coordinator/src/main/resources/common/message.
"""

from __future__ import annotations

import uuid

from protocol.internal_topics.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupValue,
    OffsetCommitKey,
)
from protocol.wire.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Payload,
    array,
    struct,
    wire,
    wire_class,
)


@wire_class
class ConsumerGroupMetadataKey(GroupKey):
    """A group."""

    record_type = 3

    group_id: str = wire(STRING)


@wire_class
class ConsumerGroupMetadataValue(GroupValue):
    """The group's epoch."""

    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0, default=0)
    """Hash of the topics that it is subscribed to (KIP-1101)."""


@wire_class
class ConsumerGroupPartitionMetadataKey(GroupKey):
    """The topics of a group, in the format of releases before 4.1."""

    record_type = 4

    group_id: str = wire(STRING)


@wire_class
class PartitionRacks:
    """The racks of a partition's replicas."""

    partition: int = wire(INT32)
    racks: tuple[str, ...] = wire(array(STRING))


@wire_class
class TopicMetadata:
    """A topic that a group is subscribed to."""

    topic_id: uuid.UUID = wire(UUID)
    topic_name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    partition_metadata: tuple[PartitionRacks, ...] = wire(array(PartitionRacks))


@wire_class
class ConsumerGroupPartitionMetadataValue(GroupValue):
    """The group's topics as it last saw them."""

    topics: tuple[TopicMetadata, ...] = wire(array(TopicMetadata))


@wire_class
class ConsumerGroupMemberMetadataKey(GroupKey):
    """A member's subscription."""

    record_type = 5

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@wire_class
class ClassicProtocol:
    """A protocol that a member of the classic protocol supports."""

    name: str = wire(STRING)
    metadata: Payload = wire(BYTES)


@wire_class
class ClassicMemberMetadata:
    """The JoinGroup fields of a member that still uses the classic protocol."""

    session_timeout_ms: int = wire(INT32)
    supported_protocols: tuple[ClassicProtocol, ...] = wire(array(ClassicProtocol))


@wire_class
class ConsumerGroupMemberMetadataValue(GroupValue):
    """A member's identity and subscription."""

    instance_id: str | None = wire(STRING, nullable_since=0)
    rack_id: str | None = wire(STRING, nullable_since=0)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable_since=0)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    server_assignor: str | None = wire(STRING, nullable_since=0)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        struct(ClassicMemberMetadata), tag=0, nullable_since=0, default=None
    )


@wire_class
class ConsumerGroupTargetAssignmentMetadataKey(GroupKey):
    """A group's target assignment."""

    record_type = 6

    group_id: str = wire(STRING)


@wire_class
class ConsumerGroupTargetAssignmentMetadataValue(GroupValue):
    """The group epoch for which the target assignment was computed."""

    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0, default=0)


@wire_class
class ConsumerGroupTargetAssignmentMemberKey(GroupKey):
    """A member's target assignment."""

    record_type = 7

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@wire_class
class AssignedTopic:
    """Partitions of one topic."""

    topic_id: uuid.UUID = wire(UUID)
    partitions: tuple[int, ...] = wire(array(INT32))


@wire_class
class ConsumerGroupTargetAssignmentMemberValue(GroupValue):
    """The partitions that a member should have."""

    topic_partitions: tuple[AssignedTopic, ...] = wire(array(AssignedTopic))


@wire_class
class ConsumerGroupCurrentMemberAssignmentKey(GroupKey):
    """A member's current assignment."""

    record_type = 8

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@wire_class
class OwnedTopic:
    """Partitions of one topic that a member has."""

    topic_id: uuid.UUID = wire(UUID)
    partitions: tuple[int, ...] = wire(array(INT32))
    assignment_epochs: tuple[int, ...] | None = wire(
        array(INT32), tag=0, nullable_since=0, default=()
    )
    """For each of `partitions`, the member epoch since which the member has it (KIP-1251)."""


@wire_class
class ConsumerGroupCurrentMemberAssignmentValue(GroupValue):
    """The partitions that a member has and must give up, and its epochs."""

    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: tuple[OwnedTopic, ...] = wire(array(OwnedTopic))
    partitions_pending_revocation: tuple[OwnedTopic, ...] = wire(array(OwnedTopic))


@wire_class
class ConsumerGroupRegularExpressionKey(GroupKey):
    """A regular expression that members subscribe to."""

    record_type = 16

    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


@wire_class
class ConsumerGroupRegularExpressionValue(GroupValue):
    """The topics that match it."""

    topics: tuple[str, ...] = wire(array(STRING))
    version: int = wire(INT64)
    """Version of the metadata that it was resolved against."""
    timestamp: int = wire(INT64)


RECORD_TYPES: dict[int, tuple[type[GroupKey], type[GroupValue]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Key and value classes by the key's type. On disk: types never change."""


def group_of(key: GroupKey) -> str:
    """Returns the id of the group that a record belongs to."""
    if isinstance(key, OffsetCommitKey | GroupMetadataKey):
        return key.group
    group_id: str = key.group_id  # type: ignore[attr-defined] # All keys of this module have it.
    return group_id

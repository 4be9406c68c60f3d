"""Encodes a consumer group as records of `__consumer_offsets`, and decodes its members. Pure.

    group     epoch | target assignment's epoch
    member    subscription | target assignment | current assignment
    regex     the topics that match it

Source: Apache Kafka, GroupCoordinatorRecordHelpers.java, ConsumerGroupMember.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import cast

from protocol.internal_topics.consumer_group_records import (
    AssignedTopic,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OwnedTopic,
)
from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.schema import copied
from server.coordination.groups.consumer.member import (
    ConsumerMember,
    Holding,
    MemberState,
    as_frozenset,
)
from server.coordination.groups.events import Assignment, ClassicMember, MemberProtocol

NAMES_SORTED_MAX = 1_000


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=now_ms
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    topics = tuple(
        AssignedTopic(topic_id=topic, partitions=tuple(sorted(numbers)))
        for topic, numbers in sorted(target.items())
    )
    return GroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics),
    )


def subscription_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=_as_array(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if member.classic is None else _metadata(member.classic),
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def current_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.revoking),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def regex_record(group_id: str, regex: str, topics: frozenset[str], now_ms: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(topics)), version=0, timestamp=now_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return GroupRecord(key, None)


def member_tombstones(group_id: str, member_id: str) -> tuple[GroupRecord, ...]:
    keys = (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return tuple(GroupRecord(key, None) for key in keys)


# Decoding.


def with_subscription(
    member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=as_frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=_classic(value.classic_member_metadata),
    )


def with_current(
    member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    known = value.state in MemberState.__members__.values()
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNKNOWN,
        assigned=_holding(value.assigned_partitions, value.member_epoch),
        revoking=_holding(value.partitions_pending_revocation, value.member_epoch),
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def _as_array(names: frozenset[str]) -> tuple[str, ...]:
    """Returns the names for a record's field: sorted, for readers of a dump, unless they are too many.

    Many names stay the set that they are: copying it would take long, and it may be encoded already.
    """
    if len(names) > NAMES_SORTED_MAX:
        return cast("tuple[str, ...]", names)
    return tuple(sorted(names))


def _metadata(classic: ClassicMember) -> ClassicMemberMetadata:
    protocols = (ClassicProtocol(name=p.name, metadata=p.metadata) for p in classic.protocols)
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms, supported_protocols=tuple(protocols)
    )


def _classic(metadata: ClassicMemberMetadata | None) -> ClassicMember | None:
    if metadata is None:
        return None
    return ClassicMember(
        session_timeout_ms=metadata.session_timeout_ms,
        protocols=tuple(
            MemberProtocol(each.name, copied(each.metadata))
            for each in metadata.supported_protocols
        ),
    )


def _owned(holding: Holding) -> tuple[OwnedTopic, ...]:
    return tuple(
        OwnedTopic(
            topic_id=topic,
            partitions=tuple(sorted(epochs)),
            assignment_epochs=tuple(epochs[number] for number in sorted(epochs)),
        )
        for topic, epochs in sorted(holding.items())
    )


def _holding(owned: tuple[OwnedTopic, ...], member_epoch: int) -> Holding:
    """Decode partitions. Earlier releases did not write the epoch at which a member got each one; then
    its member epoch stands in."""
    return {each.topic_id: _epochs(each, member_epoch) for each in owned}


def _epochs(owned: OwnedTopic, member_epoch: int) -> Mapping[int, int]:
    epochs = (owned.assignment_epochs or ())[: len(owned.partitions)]
    return dict(zip_longest(owned.partitions, epochs, fillvalue=member_epoch))

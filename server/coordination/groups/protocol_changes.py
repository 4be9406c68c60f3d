"""Changes the protocol of a group with members (`group.consumer.migration.policy`). Pure.

    upgrade     a first member of the consumer protocol joins a group of the classic protocol
    downgrade   the last such member leaves, and only members of the classic protocol remain

Members keep their assigned partitions. After an upgrade a member rejoins only when its target changes;
after a downgrade all of them rejoin.

Source: Apache Kafka, ConsumerGroup.java `fromClassicGroup`, ClassicGroup.java `fromConsumerGroup`;
KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Self

from protocol.internal_topics.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    write,
)
from protocol.internal_topics.group_records import GroupRecord
from protocol.wire.errors import DecodeError
from server.coordination.groups import events
from server.coordination.groups.classic.group import Group, GroupState
from server.coordination.groups.classic.member import Member
from server.coordination.groups.consumer import assignors
from server.coordination.groups.consumer.member import ConsumerMember
from server.coordination.groups.consumer.mixed_group import MixedGroup, assignment_of
from server.coordination.groups.consumer.records import (
    current_record,
    epoch_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from server.coordination.groups.consumer.topic_catalog import TopicCatalog
from server.coordination.groups.events import ClassicMember
from server.coordination.groups.outcome import Outcome

UPGRADES, DOWNGRADES = {"upgrade", "bidirectional"}, {"downgrade", "bidirectional"}
"""The policies that allow each direction."""


class CannotUpgrade(Exception):
    """The group cannot be upgraded; the message gives the reason, in Kafka's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembers:
    """The members of a classic group at one moment."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    members: tuple[Member, ...]
    """Copies."""

    @classmethod
    def of(cls, group: Group) -> Self:
        return cls(
            group_id=group.group_id,
            generation=group.generation,
            protocol_type=group.roster.protocol_type,
            protocol_name=group.protocol_name,
            members=tuple(map(copy, group.roster)),
        )


def upgrade(group: ClassicMembers, upgraded: MixedGroup, *, now_ms: int) -> tuple[GroupRecord, ...]:
    """Copy the state of a classic group into a new consumer group. Returns its records.

    Raises:
        CannotUpgrade: the members are no consumers, or their metadata cannot be used.
    """
    if group.protocol_type != PROTOCOL_TYPE:
        raise CannotUpgrade("the group does not use the consumer embedded protocol")
    records = tuple(_records(group, upgraded.topics, now_ms))
    for record in records:
        upgraded.data.apply(record)
    return records


def _records(group: ClassicMembers, topics: TopicCatalog, now_ms: int) -> Iterator[GroupRecord]:
    group_id, generation = group.group_id, group.generation
    taken: set[assignors.Part] = set()
    yield epoch_record(group_id, generation, 0)
    yield target_epoch_record(group_id, generation, now_ms)
    for each in group.members:
        member = _consumer_member(each, group, topics, taken)
        yield subscription_record(group_id, member)
        yield target_record(group_id, member.member_id, member.assignment)
        yield current_record(group_id, member)


def _consumer_member(
    member: Member, group: ClassicMembers, topics: TopicCatalog, taken: set[assignors.Part]
) -> ConsumerMember:
    subscription, assignment = _decoded(member, group)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned={
            topic: dict.fromkeys(numbers, group.generation)
            for topic, numbers in _assigned(assignment, topics, taken).items()
        },
    )


def _decoded(member: Member, group: ClassicMembers) -> tuple[Subscription, Assignment]:
    name = group.protocol_name or member.protocols[0].name
    try:
        subscription = decode_subscription(member.metadata(name))
        assignment = decode_assignment(member.assignment)
    except DecodeError as error:
        raise CannotUpgrade("the embedded consumer protocol is malformed") from error
    if assignment.user_data:
        raise CannotUpgrade("an unsupported custom assignor is in use")
    return subscription, assignment


def _assigned(
    assignment: Assignment, topics: TopicCatalog, taken: set[assignors.Part]
) -> events.Assignment:
    """Returns a member's existing partitions. A leader may have assigned a partition twice; then the
    first member keeps it."""
    parts = {
        (topic.id, number)
        for each in assignment.assigned_partitions
        if (topic := topics.get(each.topic)) is not None
        for number in each.partitions
        if number < len(topic.partitions)
    } - taken
    taken |= parts
    return assignors.assignment_of(parts)


def may_downgrade(group: MixedGroup) -> bool:
    """Returns whether only members of the classic protocol are left."""
    members = group.data.members.values()
    return bool(members) and all(member.classic is not None for member in members)


def downgrade(group: MixedGroup, downgraded: Group, *, now_ms: int) -> Outcome:
    """Copy the rest of a consumer group into a new classic group, and have all members rejoin."""
    downgraded.generation = group.data.epoch
    for member in group.data.members.values():
        downgraded.roster.add(_classic_member(member, group.topics, now_ms))
    downgraded.protocol_name = downgraded.roster.select_protocol()
    downgraded.state = GroupState.STABLE
    return downgraded.rebalance("only members of the classic protocol are left", now_ms=now_ms)


def _classic_member(member: ConsumerMember, topics: TopicCatalog, now_ms: int) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=member.classic.protocols,
        session_deadline_ms=now_ms + member.classic.session_timeout_ms,
        assignment=write(assignment_of(member.assignment, topics), 0),
    )

"""Checks which commits, fetches, deletions and expiries of offsets a group allows, and whether the group
itself may be deleted. Pure; changes nothing.

Source: Apache Kafka, ClassicGroup.java, ConsumerGroup.java (validateOffsetCommit, validateOffsetFetch,
validateOffsetDelete, validateDeleteGroup, offsetExpirationCondition); KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from protocol.internal_topics.consumer_protocol import decode_subscription
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import DecodeError
from server.coordination.groups.classic.group import Group, GroupState
from server.coordination.groups.classic.guards import member_guard
from server.coordination.groups.classic.state_table import GROUP_STATES, Event, Guard
from server.coordination.groups.committed_offsets import OffsetExpiry
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.member import ConsumerMember
from server.coordination.groups.events import NO_MEMBER
from server.coordination.groups.group_entry import AnyGroup

CONSUMER = "consumer"
"""The protocol type of consumers, whose metadata the broker can decode."""

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The identity that a commit or fetch claims. The default is a client outside of the group: a tool,
    or a consumer that assigns partitions to itself."""

    member_id: str = NO_MEMBER
    instance_id: str | None = None
    generation: int = NO_GENERATION
    """For a member of the consumer protocol, its epoch."""
    knows_epochs: bool = True
    """Whether the request's version knows member epochs (v9)."""

    @property
    def is_outside(self) -> bool:
        is_anonymous = self.member_id == NO_MEMBER and self.instance_id is None
        return self.generation < 0 and is_anonymous


OUTSIDE = Claim()


def commit_error(group: AnyGroup, claim: Claim, parts: Iterable[tuple[str, int]] = ()) -> ErrorCode:
    """Returns whether this client may commit offsets of these topics and partitions."""
    if isinstance(group, ConsumerGroup):
        return _consumer_commit_error(group, claim, parts)
    return _classic_commit_error(group, claim)


def fetch_error(group: AnyGroup, claim: Claim) -> ErrorCode:
    """Returns whether this client may fetch offsets; in the classic protocol any client may."""
    is_outside = not claim.member_id and claim.generation < 0
    if is_outside or not isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    member = group.data.members.get(claim.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if claim.generation == member.epoch else ErrorCode.STALE_MEMBER_EPOCH


def _consumer_commit_error(
    group: ConsumerGroup, claim: Claim, parts: Iterable[tuple[str, int]]
) -> ErrorCode:
    if claim.generation < 0 and not group.data.members:
        return ErrorCode.NONE
    member = group.data.members.get(claim.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_current = claim.generation == member.epoch
    if member.classic is not None:
        return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION
    if not claim.knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    if is_current or _has_owned_since(member, group, claim.generation, parts):
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH


def _has_owned_since(
    member: ConsumerMember, group: ConsumerGroup, epoch: int, parts: Iterable[tuple[str, int]]
) -> bool:
    """Returns whether the member has had all these partitions since that earlier epoch or longer.

    Then no other member has had them, and the commit only crossed the answer with the new epoch
    (KIP-1251).
    """
    if not 0 < epoch < member.epoch:
        return False
    for name, number in parts:
        topic = group.topics.get(name)
        since = None if topic is None else member.assigned.get(topic.id, {}).get(number)
        if since is None or since > epoch:
            return False
    return True


def _classic_commit_error(group: Group, claim: Claim, event: Event = Event.COMMIT) -> ErrorCode:
    return GROUP_STATES.step(group.state, event, _claim_guard(group, claim)).error_code


def _claim_guard(group: Group, claim: Claim) -> Guard:
    """Returns the guard of a commit in a classic group."""
    if claim.is_outside:
        return Guard.OUTSIDE
    if claim.generation < 0 and group.state is GroupState.EMPTY:
        return Guard.NO_GENERATION
    member = group.roster.find(claim.member_id, claim.instance_id)
    return member_guard(group, claim.generation, member)


def transactional_commit_error(
    group: AnyGroup, claim: Claim, parts: Iterable[tuple[str, int]] = ()
) -> ErrorCode:
    """Returns whether a commit in a transaction is allowed. The transaction fences its producer, so
    clients before TxnOffsetCommit v3 need not identify themselves, and a rebalance is no reason to
    refuse (KIP-447)."""
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE if claim.is_outside else _consumer_commit_error(group, claim, parts)
    return _classic_commit_error(group, claim, Event.COMMIT_IN_TRANSACTION)


def is_empty(group: AnyGroup) -> bool:
    """Returns whether the group has no members."""
    if isinstance(group, ConsumerGroup):
        return not group.data.members
    return group.state is GroupState.EMPTY


def delete_error(group: AnyGroup) -> ErrorCode:
    """Returns whether the group may be deleted."""
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NON_EMPTY_GROUP if group.data.members else ErrorCode.NONE
    return GROUP_STATES.step(group.state, Event.DELETE, Guard.ALWAYS).error_code


def offset_delete_error(group: AnyGroup) -> ErrorCode:
    """Returns whether offsets may be deleted; for consumers only those of topics without subscribers
    (`subscribed_among`)."""
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    is_consumers = group.roster.protocol_type == CONSUMER
    guard = Guard.CONSUMERS if is_consumers else Guard.OTHER_TYPE
    return GROUP_STATES.step(group.state, Event.DELETE_OFFSETS, guard).error_code


def offset_expiry(group: AnyGroup) -> OffsetExpiry | None:
    """Returns which offsets may expire now (KIP-211); None: no offset."""
    if isinstance(group, ConsumerGroup):
        return OffsetExpiry(subscribed=group.data.topics)
    if group.roster.protocol_type is None:
        return OffsetExpiry()
    if group.state is GroupState.EMPTY:
        return OffsetExpiry(empty_since_ms=group.state_since_ms)
    subscribed = subscribed_topics(group)
    if group.state is not GroupState.STABLE or subscribed is None:
        return None
    return OffsetExpiry(subscribed=subscribed)


def subscribed_among(group: AnyGroup, topics: AbstractSet[str]) -> AbstractSet[str]:
    """Returns those topics to which a member is subscribed, or may be (unreadable metadata)."""
    if isinstance(group, ConsumerGroup):
        subscriptions = group.data.subscriptions
        return {topic for topic in topics if any(topic in names for names in subscriptions)}
    subscribed = subscribed_topics(group)
    if subscribed is None:
        return topics if group.roster.protocol_type == CONSUMER else frozenset()
    return subscribed & topics


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Returns the topics that any member is subscribed to; None if that is unknown."""
    if group.roster.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    try:
        for member in group.roster:
            topics.update(decode_subscription(member.metadata(group.protocol_name)).topics)
    except DecodeError:
        return None
    return frozenset(topics)

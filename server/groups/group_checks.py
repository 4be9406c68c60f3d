"""What a group allows: commits, deletions, the expiry of offsets. Pure; nothing changes here.

Source: Apache Kafka, ClassicGroup.java, ConsumerGroup.java (validateOffsetCommit,
validateOffsetFetch, validateOffsetDelete, validateDeleteGroup, offsetExpirationCondition); KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.consumer_protocol import decode_subscription
from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError
from server.groups.committed_offsets import OffsetExpiry
from server.groups.consumer_group import ConsumerGroup
from server.groups.consumer_member import ConsumerMember
from server.groups.group import Group, GroupState
from server.groups.group_entry import AnyGroup
from server.groups.member import NO_MEMBER

CONSUMER = "consumer"
"""The protocol type of consumers: the broker knows what their metadata mean."""

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who says that it commits. By default somebody outside of the group: a tool, or a consumer
    that assigns partitions to itself."""

    member_id: str = NO_MEMBER
    instance_id: str | None = None
    generation: int = NO_GENERATION
    """Of a member of the consumer protocol its epoch."""
    knows_epochs: bool = True
    """Whether the request is one that members of the consumer protocol send (v9)."""

    @property
    def is_outside(self) -> bool:
        is_anonymous = self.member_id == NO_MEMBER and self.instance_id is None
        return self.generation < 0 and is_anonymous


OUTSIDE = Claim()


def commit_error(group: AnyGroup, claim: Claim, parts: Iterable[tuple[str, int]] = ()) -> ErrorCode:
    """Whether offsets of these topics and partitions may be committed by who says so."""
    if isinstance(group, ConsumerGroup):
        return _consumer_commit_error(group, claim, parts)
    return _classic_commit_error(group, claim)


def fetch_error(group: AnyGroup, claim: Claim) -> ErrorCode:
    """Whether offsets may be fetched by who says so; of the classic protocol anybody may."""
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
    if is_current or _has_had_since(member, group, claim.generation, parts):
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH


def _has_had_since(
    member: ConsumerMember, group: ConsumerGroup, epoch: int, parts: Iterable[tuple[str, int]]
) -> bool:
    """Whether the member has had all of these since that epoch of its, or before: then nobody else
    has, and the commit only crossed the news of another epoch (KIP-1251)."""
    if not 0 < epoch < member.epoch:
        return False
    for name, number in parts:
        topic = group.topics.get(name)
        since = None if topic is None else member.assigned.get(topic.id, {}).get(number)
        if since is None or since > epoch:
            return False
    return True


def _classic_commit_error(group: Group, claim: Claim) -> ErrorCode:
    if claim.is_outside and group.state is not GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refused = _classic_transactional_error(group, claim)
    if refused is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return refused


def transactional_commit_error(
    group: AnyGroup, claim: Claim, parts: Iterable[tuple[str, int]] = ()
) -> ErrorCode:
    """The same in a transaction, whose producer is fenced by itself: clients before TxnOffsetCommit v3
    do not say who they are, and a rebalance is no reason to refuse (KIP-447)."""
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE if claim.is_outside else _consumer_commit_error(group, claim, parts)
    return _classic_transactional_error(group, claim)


def _classic_transactional_error(group: Group, claim: Claim) -> ErrorCode:
    if claim.is_outside or (claim.generation < 0 and group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    member = group.roster.find(claim.member_id, claim.instance_id)
    if isinstance(member, ErrorCode):
        return member
    is_current = claim.generation == group.generation
    return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION


def is_empty(group: AnyGroup) -> bool:
    """Whether nobody is a member."""
    if isinstance(group, ConsumerGroup):
        return not group.data.members
    return group.state is GroupState.EMPTY


def delete_error(group: AnyGroup) -> ErrorCode:
    """Whether the group may go."""
    return ErrorCode.NONE if is_empty(group) else ErrorCode.NON_EMPTY_GROUP


def offset_delete_error(group: AnyGroup) -> ErrorCode:
    """Whether offsets may be deleted; of consumers only those of topics that nobody is subscribed
    to (`is_subscribed`)."""
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    is_known = group.state is GroupState.EMPTY or group.roster.protocol_type == CONSUMER
    return ErrorCode.NONE if is_known else ErrorCode.NON_EMPTY_GROUP


def offset_expiry(group: AnyGroup) -> OffsetExpiry | None:
    """Which offsets may expire now (KIP-211); None: not one."""
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


def is_subscribed(group: AnyGroup, topic: str) -> bool:
    """Whether a member is, or may be, because nobody can read what consumers have said."""
    if isinstance(group, ConsumerGroup):
        return topic in group.data.topics
    subscribed = subscribed_topics(group)
    if subscribed is None:
        return group.roster.protocol_type == CONSUMER
    return topic in subscribed


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that any member is subscribed to; None where nobody can say."""
    if group.roster.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    try:
        for member in group.roster:
            topics.update(decode_subscription(member.metadata(group.protocol_name)).topics)
    except DecodeError:
        return None
    return frozenset(topics)

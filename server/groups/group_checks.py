"""What a group allows: commits, deletions, the expiry of offsets. Pure; nothing changes here.

Source: Apache Kafka, ClassicGroup.java (validateOffsetCommit, validateOffsetDelete,
validateDeleteGroup, offsetExpirationCondition).
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.consumer_protocol import decode_subscription
from protocol.error_codes import ErrorCode
from protocol.errors import DecodeError
from server.groups.committed_offsets import OffsetExpiry
from server.groups.group import Group, GroupState
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

    @property
    def is_outside(self) -> bool:
        is_anonymous = self.member_id == NO_MEMBER and self.instance_id is None
        return self.generation < 0 and is_anonymous


def commit_error(group: Group, claim: Claim) -> ErrorCode:
    """Whether offsets may be committed by who says so."""
    if claim.is_outside and group.state is not GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refused = transactional_commit_error(group, claim)
    if refused is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return refused


def transactional_commit_error(group: Group, claim: Claim) -> ErrorCode:
    """The same in a transaction, whose producer is fenced by itself: clients before TxnOffsetCommit v3
    do not say who they are, and a rebalance is no reason to refuse (KIP-447)."""
    if claim.is_outside or (claim.generation < 0 and group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    member = group.roster.find(claim.member_id, claim.instance_id)
    if isinstance(member, ErrorCode):
        return member
    is_current = claim.generation == group.generation
    return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION


def delete_error(group: Group) -> ErrorCode:
    """Whether the group may go."""
    is_empty = group.state is GroupState.EMPTY
    return ErrorCode.NONE if is_empty else ErrorCode.NON_EMPTY_GROUP


def offset_delete_error(group: Group) -> ErrorCode:
    """Whether offsets may be deleted; of consumers only those of topics that nobody is subscribed
    to (`subscribed_topics`)."""
    is_known = group.state is GroupState.EMPTY or group.roster.protocol_type == CONSUMER
    return ErrorCode.NONE if is_known else ErrorCode.NON_EMPTY_GROUP


def offset_expiry(group: Group) -> OffsetExpiry | None:
    """Which offsets may expire now (KIP-211); None: not one."""
    if group.roster.protocol_type is None:
        return OffsetExpiry()
    if group.state is GroupState.EMPTY:
        return OffsetExpiry(empty_since_ms=group.state_since_ms)
    subscribed = subscribed_topics(group)
    if group.state is not GroupState.STABLE or subscribed is None:
        return None
    return OffsetExpiry(subscribed=subscribed)


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

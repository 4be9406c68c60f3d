"""Identifies the member that sent a heartbeat, and checks its member epoch. Pure; changes nothing.

Source: Apache Kafka, GroupMetadataManager.java (throwIfConsumerGroupMemberEpochIsInvalid and others).
"""

from __future__ import annotations

from dataclasses import replace

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.consumer.member import AWAY, JOINING, ConsumerMember, covers
from server.coordination.groups.consumer.state import ConsumerState
from server.coordination.groups.events import Beat
from server.coordination.groups.outcome import HeartbeatAnswer


def heartbeating_member(
    group: ConsumerState, beat: Beat, *, group_id: str, size_max: int
) -> ConsumerMember | HeartbeatAnswer:
    """Returns the known member, a new one, or a returning static one under its new id; or the error."""
    if len(group.members) >= size_max and beat.member_id not in group.members:
        text = f"The consumer group has reached its maximum capacity of {size_max} members."
        return HeartbeatAnswer(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, message=text)
    is_joining = beat.member_epoch == JOINING
    if beat.instance_id is not None:
        return _joining_static(group, beat) if is_joining else _living_static(group, beat)
    member = group.members.get(beat.member_id)
    if member is None:
        return ConsumerMember(member_id=beat.member_id) if is_joining else _unknown(beat, group_id)
    return member if is_joining else _at_its_epoch(member, beat)


def leaving_member(
    group: ConsumerState, beat: Beat, *, group_id: str
) -> ConsumerMember | HeartbeatAnswer:
    """Returns the member that leaves, or the error."""
    if beat.instance_id is not None:
        return _static(group, beat, beat.instance_id)
    return group.members.get(beat.member_id) or _unknown(beat, group_id)


def _joining_static(group: ConsumerState, beat: Beat) -> ConsumerMember | HeartbeatAnswer:
    """Let a static member join if it has left temporarily or still uses its member id."""
    member = group.static_member(beat.instance_id or "")
    if member is None:
        return group.members.get(beat.member_id) or ConsumerMember(member_id=beat.member_id)
    if member.member_id == beat.member_id and member.epoch != AWAY:
        return member
    if member.epoch != AWAY and member.classic is None and beat.classic is None:
        text = (
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the"
            f" group because the instance id is owned by {member.member_id} member."
        )
        return HeartbeatAnswer(error_code=ErrorCode.UNRELEASED_INSTANCE_ID, message=text)
    return replace(member, member_id=beat.member_id, epoch=JOINING, previous_epoch=JOINING)


def _living_static(group: ConsumerState, beat: Beat) -> ConsumerMember | HeartbeatAnswer:
    member = _static(group, beat, beat.instance_id or "")
    return member if isinstance(member, HeartbeatAnswer) else _at_its_epoch(member, beat)


def _static(group: ConsumerState, beat: Beat, instance_id: str) -> ConsumerMember | HeartbeatAnswer:
    member = group.static_member(instance_id)
    if member is None:
        text = f"Instance id {instance_id} is unknown."
        return HeartbeatAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID, message=text)
    if member.member_id != beat.member_id:
        text = (
            f"Static member {beat.member_id} with instance id {instance_id} was fenced by member"
            f" {member.member_id}."
        )
        return HeartbeatAnswer(error_code=ErrorCode.FENCED_INSTANCE_ID, message=text)
    return member


def _at_its_epoch(member: ConsumerMember, beat: Beat) -> ConsumerMember | HeartbeatAnswer:
    """Returns the member if the heartbeat carries its epoch. The previous epoch is also valid if the
    member claims only partitions that it has: then the last answer did not reach it."""
    said, known = beat.member_epoch, member.epoch
    if said == known:
        return member
    has_missed_one = said < known and said == member.previous_epoch
    if has_missed_one and beat.owned is not None and covers(member.assigned, beat.owned):
        return member
    compared = "greater" if said > known else "smaller"
    text = (
        f"The consumer group member has a {compared} member epoch ({said}) than the one known by the"
        f" group coordinator ({known}). The member must abandon all its partitions and rejoin."
    )
    return HeartbeatAnswer(error_code=ErrorCode.FENCED_MEMBER_EPOCH, message=text)


def _unknown(beat: Beat, group_id: str) -> HeartbeatAnswer:
    text = f"Member {beat.member_id} is not a member of group {group_id}."
    return HeartbeatAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID, message=text)

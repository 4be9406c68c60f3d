"""Makes the answers to members about a group's generation, and its record. Pure; changes nothing.

`restore.py` turns the record back into a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.internal_topics.group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord
from server.coordination.groups.classic.member import Member
from server.coordination.groups.events import NO_MEMBER
from server.coordination.groups.outcome import Joined, JoinedMember, Synced

if TYPE_CHECKING:
    from server.coordination.groups.classic.rebalance import RebalancingGroup


def joined(
    group: RebalancingGroup,
    member: Member,
    *,
    leader_id: str | None = None,
    skip_assignment: bool = False,
) -> Joined:
    """Returns a member's answer to JoinGroup; the leader's answer lists all members.

    Args:
        leader_id: reported instead of the real leader.
    """
    leader_id = leader_id or group.roster.leader_id or NO_MEMBER
    leads = leader_id == member.member_id
    return Joined(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.roster.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=leader_id,
        skip_assignment=skip_assignment,
        members=_members(group) if leads else (),
    )


def _members(group: RebalancingGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.roster
    )


def synced(group: RebalancingGroup, member: Member) -> Synced:
    """Returns a member's answer to SyncGroup."""
    return Synced(
        protocol_type=group.roster.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def record_of(group: RebalancingGroup) -> GroupRecord:
    """Returns the record from which a restarted broker restores the group."""
    value = GroupMetadataValue(
        protocol_type=group.roster.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.roster.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=tuple(member.stored(group.protocol_name) for member in group.roster),
    )
    return GroupRecord(GroupMetadataKey(group=group.group_id), value)

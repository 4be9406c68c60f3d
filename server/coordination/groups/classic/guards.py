"""Says which guard applies to an event of a classic group (`state_table.py`). Pure.

Source: Apache Kafka, GroupMetadataManager.java, ClassicGroup.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.member import Member
from server.coordination.groups.classic.state_table import GroupState, Guard
from server.coordination.groups.events import NO_MEMBER, Join, Leave, Sync

if TYPE_CHECKING:
    from server.coordination.groups.classic.rebalance import RebalancingGroup

STRANGERS = {
    ErrorCode.UNKNOWN_MEMBER_ID: Guard.UNKNOWN,
    ErrorCode.FENCED_INSTANCE_ID: Guard.FENCED,
}
"""The guards of requests that come from no member, by the reason."""


def join_guard(group: RebalancingGroup, join: Join) -> Guard:
    """Returns the guard of a JoinGroup."""
    roster, member_id = group.roster, join.member_id
    if not _has_room_for(group, member_id):
        return Guard.FULL
    if not roster.supports(join.protocol_type, [each.name for each in join.protocols]):
        return Guard.MISFIT
    if member_id == NO_MEMBER:
        return _newcomer_guard(group, join)
    if member_id in roster.pending and join.instance_id is None:
        return Guard.NEW
    member = roster.find(member_id, join.instance_id)
    if isinstance(member, ErrorCode):
        return STRANGERS[member]
    if member.protocols != join.protocols:
        return Guard.CHANGED
    return _rank(group, member)


def _has_room_for(group: RebalancingGroup, member_id: str) -> bool:
    """Returns whether `group.max.size` allows the member."""
    roster, size_max = group.roster, group.settings.size_max
    if group.state is GroupState.EMPTY:
        return True
    member = roster.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # If the limit was lowered, the members that rejoin last have to go.
        waits = member is not None and member.join_ticket is not None
        return waits or roster.awaiting_join < size_max
    return member is not None or len(roster) < size_max


def _newcomer_guard(group: RebalancingGroup, join: Join) -> Guard:
    """Returns the guard of a join without member id."""
    if join.instance_id is not None:
        is_back = group.roster.static_member(join.instance_id) is not None
        return Guard.RETURNING if is_back else Guard.NEW
    return Guard.NEW if join.knows_its_id else Guard.NEEDS_ID


def _rank(group: RebalancingGroup, member: Member) -> Guard:
    return Guard.LEADER if group.roster.leader_id == member.member_id else Guard.FOLLOWER


def return_guard(group: RebalancingGroup) -> Guard:
    """Returns the guard of a static member's return, once its protocols are known."""
    # In a large group the votes take long to count, and only a stable one continues its generation.
    is_stable = group.state is GroupState.STABLE
    is_same = is_stable and group.roster.select_protocol() == group.protocol_name
    return Guard.SAME_PROTOCOL if is_same else Guard.OTHER_PROTOCOL


def sync_guard(group: RebalancingGroup, sync: Sync, member: Member | ErrorCode) -> Guard:
    """Returns the guard of a SyncGroup.

    Args:
        member: the member that sent it; an error if it is none.
    """
    if isinstance(member, ErrorCode):
        return STRANGERS[member]
    if sync.generation != group.generation:
        return Guard.OTHER_GENERATION
    if sync.protocol_type not in (None, group.roster.protocol_type):
        return Guard.OTHER_PROTOCOL
    if sync.protocol_name not in (None, group.protocol_name) and group.protocol_name is not None:
        return Guard.OTHER_PROTOCOL
    return _rank(group, member)


def member_guard(group: RebalancingGroup, generation: int, member: Member | ErrorCode) -> Guard:
    """Returns the guard of a request that names a generation.

    Args:
        member: the member that sent it; an error if it is none.
    """
    if isinstance(member, ErrorCode):
        return STRANGERS[member]
    return Guard.MEMBER if generation == group.generation else Guard.OTHER_GENERATION


def leave_guard(group: RebalancingGroup, leave: Leave, member: Member | ErrorCode) -> Guard:
    """Returns the guard of one member of a LeaveGroup.

    Args:
        member: the member that leaves; an error if it is none.
    """
    if leave.member_id in group.roster.pending:
        return Guard.RESERVED
    return STRANGERS[member] if isinstance(member, ErrorCode) else Guard.MEMBER


def join_check_guard(group: RebalancingGroup) -> Guard:
    """Returns whether a join can end. An initial rebalance always waits for its deadline."""
    is_complete = not group.is_initial and group.roster.all_joined
    return Guard.ALL_JOINED if is_complete else Guard.JOINING


def join_deadline_guard(group: RebalancingGroup) -> Guard:
    """Returns whether an initial rebalance may wait for more members."""
    may_wait = group.is_initial and group.has_new_joins and group.initial_wait_ms > 0
    return Guard.EXTENDABLE if may_wait else Guard.OVER


def join_over_guard(group: RebalancingGroup, *, has_leader: bool) -> Guard:
    """Returns which members are left at the end of a join.

    Args:
        has_leader: whether a member that has joined leads.
    """
    if len(group.roster):
        return Guard.SOME_JOINED if has_leader else Guard.ONLY_ABSENT
    return Guard.NO_MEMBERS_YET if group.is_initial else Guard.NO_MEMBERS

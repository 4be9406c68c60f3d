"""Restores a classic group from its last record (`generation.py: record_of`) after a restart.

No request waits then. Members get a full session: they do not notice the restart and continue with
their assignments, without a rebalance. Only the protocol in use was stored, so a new member that does
not support it is refused until the others have rejoined, as in Kafka.

Source: Apache Kafka, GroupMetadataManager.java (replay, onLoaded).
"""

from __future__ import annotations

from protocol.internal_topics.group_records import GroupMetadataValue, MemberMetadata
from protocol.wire.schema import copied
from server.coordination.groups.classic.group import Group, GroupSettings, GroupState
from server.coordination.groups.classic.member import Member
from server.coordination.groups.events import MemberProtocol


def restored(
    group_id: str, value: GroupMetadataValue, settings: GroupSettings, *, now_ms: int
) -> Group:
    """Returns the group. Call `group.expire(now_ms)` for its first deadline; that changes
    nothing else."""
    group = Group(group_id, settings, now_ms=now_ms)
    group.generation = value.generation
    group.protocol_name = value.protocol
    for stored in value.members:
        group.roster.add(_member(stored, value, now_ms))
    group.roster.protocol_type = value.protocol_type or None
    if value.leader is not None and group.roster.get(value.leader) is not None:
        group.roster.leader_id = value.leader
    if value.members:
        group.state = GroupState.STABLE
    if value.current_state_timestamp >= 0:
        group.state_since_ms = value.current_state_timestamp
    return group


def _member(stored: MemberMetadata, group: GroupMetadataValue, now_ms: int) -> Member:
    no_timeout = stored.rebalance_timeout < 0
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=stored.session_timeout if no_timeout else stored.rebalance_timeout,
        protocol_type=group.protocol_type,
        protocols=(MemberProtocol(group.protocol or "", copied(stored.subscription)),),
        session_deadline_ms=now_ms + stored.session_timeout,
        assignment=copied(stored.assignment),
    )

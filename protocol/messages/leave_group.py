"""LeaveGroup (key 13): members leave a group, or an operator removes them.

Versions: v3 several members, by member id or instance id (KIP-345) · v4 flexible ·
v5 reason (KIP-800).
Source: LeaveGroupRequest.json, LeaveGroupResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class MemberIdentity:
    """A member that leaves. With only an instance id, an operator removes a static member."""

    member_id: str = wire(STRING, since=3)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    reason: str | None = wire(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@wire_class
class LeaveGroupRequest(Message):
    """The members that leave: one member up to v2."""

    api_key = 13
    versions = (0, 5)
    flexible_since = 4

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, until=2, default="")
    members: tuple[MemberIdentity, ...] = wire(array(MemberIdentity), since=3, default=())


@wire_class
class MemberResponse:
    """The result for one of them."""

    member_id: str = wire(STRING, since=3)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3)
    error_code: int = wire(INT16, since=3)


@wire_class
class LeaveGroupResponse(Message):
    """The result for all, and since v3 for each."""

    api_key = 13
    versions = (0, 5)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16)
    members: tuple[MemberResponse, ...] = wire(array(MemberResponse), since=3, default=())

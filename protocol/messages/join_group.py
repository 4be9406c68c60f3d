"""JoinGroup (key 11): become a member of a group, or stay one through a rebalance.

Versions: v1 rebalance_timeout_ms · v4 a new member is first given its id (KIP-394) ·
v5 group_instance_id (KIP-345) · v6 flexible · v7 protocol_type · v8 reason (KIP-800) ·
v9 skip_assignment (KIP-814).
Source: JoinGroupRequest.json, JoinGroupResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    STRING,
    Message,
    Payload,
    array,
    wire,
    wire_class,
)


@wire_class
class JoinGroupRequestProtocol:
    """A protocol that the member supports: for consumers, an assignor and its input."""

    name: str = wire(STRING)
    metadata: Payload = wire(BYTES)


@wire_class
class JoinGroupRequest(Message):
    """The member and the group that it wants to join."""

    api_key = 11
    versions = (0, 9)
    flexible_since = 6

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = wire(STRING)
    """Empty for a new member."""
    group_instance_id: str | None = wire(STRING, since=5, nullable_since=5, default=None)
    """The name of a static member."""
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(array(JoinGroupRequestProtocol))
    """In the order of preference."""
    reason: str | None = wire(STRING, since=8, nullable_since=8, default=None, ignorable=True)


@wire_class
class JoinGroupResponseMember:
    """A member, as its group's leader sees it."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(
        STRING, since=5, nullable_since=5, default=None, ignorable=True
    )
    metadata: Payload = wire(BYTES)


@wire_class
class JoinGroupResponse(Message):
    """The generation that the member is in."""

    api_key = 11
    versions = (0, 9)
    flexible_since = 6

    throttle_time_ms: int = wire(INT32, since=2, default=0, ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(
        STRING, since=7, nullable_since=7, default=None, ignorable=True
    )
    protocol_name: str | None = wire(STRING, nullable_since=7)
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOL, since=9, default=False)
    member_id: str = wire(STRING)
    members: tuple[JoinGroupResponseMember, ...] = wire(array(JoinGroupResponseMember))
    """All members for the leader; empty for the others."""

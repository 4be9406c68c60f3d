"""Heartbeat (key 12): a member is alive, and learns whether its group rebalances.

Versions: v3 group_instance_id (KIP-345) · v4 flexible.
Source: HeartbeatRequest.json, HeartbeatResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, STRING, Message, wire, wire_class


@wire_class
class HeartbeatRequest(Message):
    """The member that is alive."""

    api_key = 12
    versions = (0, 4)
    flexible_since = 4

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)


@wire_class
class HeartbeatResponse(Message):
    """Whether the member's generation is still the group's."""

    api_key = 12
    versions = (0, 4)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16)

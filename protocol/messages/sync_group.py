"""SyncGroup (key 14): the leader gives the assignment, everybody gets its own.

Versions: v3 group_instance_id (KIP-345) · v4 flexible · v5 protocol_type, protocol_name (KIP-559).
Source: SyncGroupRequest.json, SyncGroupResponse.json.
"""

from __future__ import annotations

from protocol.schema import BYTES, INT16, INT32, STRING, Message, Payload, array, wire, wire_class


@wire_class
class SyncGroupRequestAssignment:
    """What the leader gives one member."""

    member_id: str = wire(STRING)
    assignment: Payload = wire(BYTES)


@wire_class
class SyncGroupRequest(Message):
    """Who waits for its assignment; from the leader, everybody's."""

    api_key = 14
    versions = (0, 5)
    flexible_since = 4

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable_since=3, default=None)
    protocol_type: str | None = wire(
        STRING, since=5, nullable_since=5, default=None, ignorable=True
    )
    protocol_name: str | None = wire(
        STRING, since=5, nullable_since=5, default=None, ignorable=True
    )
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(array(SyncGroupRequestAssignment))


@wire_class
class SyncGroupResponse(Message):
    """What the member is to work on."""

    api_key = 14
    versions = (0, 5)
    flexible_since = 4

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16)
    protocol_type: str | None = wire(
        STRING, since=5, nullable_since=5, default=None, ignorable=True
    )
    protocol_name: str | None = wire(
        STRING, since=5, nullable_since=5, default=None, ignorable=True
    )
    assignment: Payload = wire(BYTES)

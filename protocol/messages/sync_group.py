"""SyncGroup (key 14): the leader sends all assignments, each member gets its own.

Versions: v3 group_instance_id (KIP-345) · v4 flexible · v5 protocol_type, protocol_name (KIP-559).
Source: SyncGroupRequest.json, SyncGroupResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import (
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
class SyncGroupRequestAssignment:
    """The assignment of one member, from the leader."""

    member_id: str = wire(STRING)
    assignment: Payload = wire(BYTES)


@wire_class
class SyncGroupRequest(Message):
    """The member that waits for its assignment; from the leader also all assignments."""

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
    """The member's assignment."""

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

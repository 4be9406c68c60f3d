"""DescribeGroups (key 15): the state and the members of groups of the classic protocol.

Versions: v3 authorized operations (KIP-430) · v4 group_instance_id (KIP-345) · v5 flexible ·
v6 error_message; a group that does not exist is an error (KIP-1043).
Source: DescribeGroupsRequest.json, DescribeGroupsResponse.json.
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
class DescribeGroupsRequest(Message):
    """The groups to describe."""

    api_key = 15
    versions = (0, 6)
    flexible_since = 5

    groups: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3, default=False)


@wire_class
class DescribedGroupMember:
    """A member, with its metadata for the group's protocol."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(
        STRING, since=4, nullable_since=4, default=None, ignorable=True
    )
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: Payload = wire(BYTES)
    member_assignment: Payload = wire(BYTES)


@wire_class
class DescribedGroup:
    """A group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=6, nullable_since=6, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: tuple[DescribedGroupMember, ...] = wire(array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, since=3, default=-(1 << 31))
    """One bit per operation; the default means that the client did not ask."""


@wire_class
class DescribeGroupsResponse(Message):
    """Each group."""

    api_key = 15
    versions = (0, 6)
    flexible_since = 5

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup))

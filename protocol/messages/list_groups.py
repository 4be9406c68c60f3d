"""ListGroups (key 16): the groups that this broker coordinates.

Versions: v3 flexible · v4 states (KIP-518) · v5 types (KIP-848).
Source: ListGroupsRequest.json, ListGroupsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class ListGroupsRequest(Message):
    """The groups to list: all, or those in certain states and of certain types."""

    api_key = 16
    versions = (0, 5)
    flexible_since = 3

    states_filter: tuple[str, ...] = wire(array(STRING), since=4, default=())
    types_filter: tuple[str, ...] = wire(array(STRING), since=5, default=())


@wire_class
class ListedGroup:
    """A group."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, default="", ignorable=True)
    group_type: str = wire(STRING, since=5, default="", ignorable=True)


@wire_class
class ListGroupsResponse(Message):
    """The groups."""

    api_key = 16
    versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16)
    groups: tuple[ListedGroup, ...] = wire(array(ListedGroup))

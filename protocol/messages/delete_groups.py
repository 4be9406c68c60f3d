"""DeleteGroups (key 42): delete groups without members, with their committed offsets.

Versions: v2 flexible.
Source: DeleteGroupsRequest.json, DeleteGroupsResponse.json.
"""

from __future__ import annotations

from protocol.wire.schema import INT16, INT32, STRING, Message, array, wire, wire_class


@wire_class
class DeleteGroupsRequest(Message):
    """The groups to delete."""

    api_key = 42
    versions = (0, 2)
    flexible_since = 2

    groups_names: tuple[str, ...] = wire(array(STRING))


@wire_class
class DeletableGroupResult:
    """The result for one group."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@wire_class
class DeleteGroupsResponse(Message):
    """The result for each group."""

    api_key = 42
    versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = wire(INT32, default=0, ignorable=True)
    results: tuple[DeletableGroupResult, ...] = wire(array(DeletableGroupResult))

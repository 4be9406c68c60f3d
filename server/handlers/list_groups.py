"""ListGroups (key 16), v0-v5.

Behaviour: returns an error while groups are still being loaded after a start, so that clients never take
an incomplete list for a complete one.
Versions: v4 filter by states (KIP-518) · v5 filter by types (KIP-848).
"""

from __future__ import annotations

from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.group_entry import AnyGroup
from server.coordination.groups.offset_checks import CONSUMER
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups that match the filters."""
    groups = context.broker.groups.groups()
    if isinstance(groups, ErrorCode):
        return refuse(request, context, groups, "")
    pace = context.pace
    states = {state.lower() async for state in pace.paced(request.states_filter)}
    types = {group_type.lower() async for group_type in pace.paced(request.types_filter)}
    sees_all = context.may(Operation.DESCRIBE, ResourceType.CLUSTER, quiet=True)
    listed = [
        _listed(group)
        async for group in pace.paced(groups)
        if (not states or group.state.value.lower() in states)
        and (not types or group.protocol in types)
        and (
            sees_all
            or context.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, quiet=True)
        )
    ]
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=tuple(listed))


def refuse(
    request: ListGroupsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error_code, groups=())


def _listed(group: AnyGroup) -> ListedGroup:
    protocol_type = (
        CONSUMER if isinstance(group, ConsumerGroup) else group.roster.protocol_type or ""
    )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=protocol_type,
        group_state=group.state.value,
        group_type=group.protocol,
    )

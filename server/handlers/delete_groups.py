"""DeleteGroups (key 42), v0-v2.

Behaviour: deletes each group that has no members, together with its committed offsets.
"""

from __future__ import annotations

from protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete the groups one by one; a group that is named twice is deleted and answered once."""
    results: dict[str, DeletableGroupResult] = {}
    async for group_id in context.pace.paced(request.groups_names):
        if group_id not in results:
            error_code = await _delete(group_id, context)
            results[group_id] = DeletableGroupResult(group_id=group_id, error_code=error_code)
    return DeleteGroupsResponse(results=tuple(results.values()))


async def _delete(group_id: str, context: RequestContext) -> ErrorCode:
    if not context.may(Operation.DELETE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return await context.broker.groups.delete(group_id)


def refuse(
    request: DeleteGroupsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=lazy_array(
            lambda group_id: DeletableGroupResult(group_id=group_id, error_code=error_code),
            request.groups_names,
        )
    )

"""DeleteGroups (key 42), v0-v2.

Behaviour: each group is deleted on its own, with what it has committed, if it has no members.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from server.dispatch import RequestContext


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete the groups one by one; who is named twice is deleted once."""
    results: dict[str, DeletableGroupResult] = {}
    async for group_id in context.pace.paced(request.groups_names):
        if group_id not in results:
            error_code = await context.broker.groups.delete(group_id)
            results[group_id] = DeletableGroupResult(group_id=group_id, error_code=error_code)
    return DeleteGroupsResponse(results=tuple(results.values()))


def refuse(
    request: DeleteGroupsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(group_id=group_id, error_code=error_code)
            for group_id in request.groups_names
        )
    )

"""Heartbeat (key 12), v0-v4.

Behaviour: REBALANCE_IN_PROGRESS asks the member to join again. While the group is still being loaded
after a start, every heartbeat is accepted.
Versions: v3 group_instance_id (KIP-345).
"""

from __future__ import annotations

from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.wire.error_codes import ErrorCode
from server.request_context import RequestContext


async def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Extend the member's session."""
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    code = context.broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)


def refuse(
    request: HeartbeatRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error_code)

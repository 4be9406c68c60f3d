"""Heartbeat (key 12), v0-v4.

Behaviour: REBALANCE_IN_PROGRESS asks the member to join again. While groups are still being read after
a start, every member is believed.
Versions: v3 group_instance_id (KIP-345).
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from server.dispatch import RequestContext


async def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Note that a member lives."""
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

"""LeaveGroup (key 13), v0-v5.

Behaviour: removes each member and answers for each; the others learn of it from their next heartbeat.
Versions: v3 several members, static ones by their instance id alone (KIP-345) · v5 reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.events import Leave
from server.coordination.groups.outcome import Left
from server.request_context import RequestContext

SEVERAL_SINCE = 3


async def handle(
    request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    """Remove the members from the group."""
    if not request.group_id:
        return refuse(request, context, ErrorCode.INVALID_GROUP_ID, "")
    members = request.members
    if context.header.api_version < SEVERAL_SINCE:
        members = (MemberIdentity(member_id=request.member_id),)
    leaving = [_leave(member) async for member in context.pace.paced(members)]
    left = await context.broker.groups.leave(request.group_id, leaving, context.pace)
    if isinstance(left, ErrorCode):
        return refuse(request, context, left, "")
    return _answer(members, left, context)


def refuse(
    request: LeaveGroupRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error_code)


def _leave(member: MemberIdentity) -> Leave:
    return Leave(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        reason=member.reason or "",
    )


async def _answer(
    members: tuple[MemberIdentity, ...], left: Awaitable[Left], context: RequestContext
) -> LeaveGroupResponse:
    codes = (await left).error_codes
    if context.header.api_version < SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    answered = [
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=code,
        )
        async for member, code in context.pace.paced(zip(members, codes, strict=True))
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=tuple(answered))

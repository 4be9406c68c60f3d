"""SyncGroup (key 14), v0-v5.

Behaviour: waits until the leader has sent the assignment and it is durable.
Versions: v3 group_instance_id · v5 protocol_type, protocol_name, which must match the group (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.coordination.groups.events import Sync
from server.coordination.groups.outcome import Synced
from server.dispatch import RequestContext


async def handle(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Return the member's assignment; the leader's request contains those of all members."""
    if not request.group_id:
        return refuse(request, context, ErrorCode.INVALID_GROUP_ID, "")
    sync = Sync(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={
            each.member_id: copied(each.assignment)
            async for each in context.pace.paced(request.assignments)
        },
    )
    return _answer(context.broker.groups.sync(request.group_id, sync))


def refuse(
    request: SyncGroupRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> SyncGroupResponse:
    return _response(Synced(error_code=error_code))


async def _answer(synced: Awaitable[Synced]) -> SyncGroupResponse:
    return _response(await synced)


def _response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )

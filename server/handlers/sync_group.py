"""SyncGroup (key 14), v0-v5.

Behaviour: waits until the leader has given the assignment and that is durable.
Versions: v3 group_instance_id · v5 protocol_type, protocol_name, which have to be the group's (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.error_codes import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.schema import copied
from server.dispatch import RequestContext
from server.groups.events import Sync
from server.groups.outcome import Synced


async def handle(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Ask for the member's assignment, and take everybody's from the leader."""
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

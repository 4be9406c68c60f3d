"""SyncGroup (key 14), v0-v5.

Behaviour: waits until the leader has sent the assignment and it is durable.
Versions: v3 group_instance_id · v5 protocol_type, protocol_name, which are required and must match the
group (KIP-559).
Source: Apache Kafka, KafkaApis.scala, SyncGroupRequest.java (areMandatoryProtocolTypeAndNamePresent).
"""

from __future__ import annotations

from collections.abc import Awaitable

from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.coordination.groups.events import Sync
from server.coordination.groups.outcome import Synced
from server.request_context import RequestContext

PROTOCOL_REQUIRED_SINCE = 5


async def handle(
    request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Return the member's assignment; the leader's request contains those of all members."""
    if context.header.api_version >= PROTOCOL_REQUIRED_SINCE and not _names_protocol(request):
        return refuse(request, context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
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


def _names_protocol(request: SyncGroupRequest) -> bool:
    return request.protocol_type is not None and request.protocol_name is not None


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

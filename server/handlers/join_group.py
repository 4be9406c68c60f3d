"""JoinGroup (key 11), v0-v9.

Behaviour: waits until all members have joined or the rebalance timeout has passed. Then each member
gets the new generation, and the leader also gets the list of members. Later requests of the same
connection do not wait for this, so a member can leave while its JoinGroup waits.
Versions: v0 uses the session timeout as the rebalance timeout · v4 a new member gets its id and joins
again with it (KIP-394) · v5 static members (KIP-345) · v9 a static leader may skip the assignment
(KIP-814).
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable

from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import copied
from server.coordination.groups.events import Join
from server.coordination.groups.member import MemberProtocol
from server.coordination.groups.outcome import Joined
from server.dispatch import RequestContext

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


async def handle(
    request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Check the request by itself, then let the member join the group."""
    config = context.broker.config
    if not request.group_id:
        return refuse(request, context, ErrorCode.INVALID_GROUP_ID, "")
    timeout_ms, at_most_ms = request.session_timeout_ms, config.group_max_session_timeout_ms
    if not config.group_min_session_timeout_ms <= timeout_ms <= at_most_ms:
        return refuse(request, context, ErrorCode.INVALID_SESSION_TIMEOUT, "")
    join = await _join(request, context)
    joined = await context.broker.groups.join(request.group_id, join)
    return _answer(joined, context)


def refuse(
    request: JoinGroupRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> JoinGroupResponse:
    return _response(Joined(error_code=error_code, member_id=request.member_id), context)


async def _join(request: JoinGroupRequest, context: RequestContext) -> Join:
    version, client_id = context.header.api_version, context.header.client_id or ""
    has_rebalance_timeout = version >= REBALANCE_TIMEOUT_SINCE
    rebalance_timeout_ms = request.rebalance_timeout_ms
    name = client_id if request.group_instance_id is None else request.group_instance_id
    return Join(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        new_member_id=f"{name}-{uuid.uuid4()}",
        client_id=client_id,
        # With a slash, as Java prints an address without a host name; tools expect that form.
        client_host=f"/{context.connection.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(rebalance_timeout_ms, 0)
        if has_rebalance_timeout
        else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=await _protocols(request, context),
        knows_its_id=version < MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
        reason=request.reason or "",
    )


async def _protocols(
    request: JoinGroupRequest, context: RequestContext
) -> tuple[MemberProtocol, ...]:
    """Returns the member's protocols in its order of preference, each once."""
    protocols: dict[str, MemberProtocol] = {}
    async for each in context.pace.paced(request.protocols):
        if each.name not in protocols:
            protocols[each.name] = MemberProtocol(each.name, copied(each.metadata))
    return tuple(protocols.values())


async def _answer(joined: Awaitable[Joined], context: RequestContext) -> JoinGroupResponse:
    return _response(await joined, context)


def _response(joined: Joined, context: RequestContext) -> JoinGroupResponse:
    no_protocol = None if context.header.api_version >= NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=joined.error_code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name or no_protocol,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in joined.members
        ),
    )

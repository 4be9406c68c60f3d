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
from dataclasses import replace
from io import BytesIO

from protocol.internal_topics.consumer_protocol import decode_subscription_in_steps
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import DecodeError
from protocol.wire.schema import Payload, copied
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.events import Join, MemberProtocol, Subscribed
from server.coordination.groups.outcome import Joined
from server.handlers.shared.subscribed_names import distinct_names, set_of_names
from server.request_context import RequestContext
from server.runtime.turns import Pace

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9

COPIED_AT_ONCE_BYTES = 256 << 10


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
    if _joins_consumers(request, context):
        subscription = await _subscription(request.group_id, join, context)
        if isinstance(subscription, ErrorCode):
            return refuse(request, context, subscription, "")
        join = replace(join, subscription=subscription)
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
            metadata = await _copied(each.metadata, context.pace)
            protocols[each.name] = MemberProtocol(each.name, metadata)
    return tuple(protocols.values())


async def _copied(metadata: Payload, pace: Pace) -> bytes:
    """Returns a copy of the metadata, in slices if it is large."""
    if len(metadata) <= COPIED_AT_ONCE_BYTES:
        return copied(metadata)
    copy = BytesIO()
    async for start in pace.paced(range(0, len(metadata), COPIED_AT_ONCE_BYTES)):
        copy.write(copied(metadata[start : start + COPIED_AT_ONCE_BYTES]))
    # This gives away the buffer; it does not copy it.
    return copy.getvalue()


def _joins_consumers(request: JoinGroupRequest, context: RequestContext) -> bool:
    """Returns whether the group has members of the consumer protocol; then the broker assigns."""
    group = context.broker.groups.describe(request.group_id)
    return isinstance(group, ConsumerGroup) and bool(group.data.members and request.protocols)


async def _subscription(
    group_id: str, join: Join, context: RequestContext
) -> Subscribed | ErrorCode:
    """Decode the member's subscription in slices. Returns an error if it is malformed or does not fit
    into the member's record."""
    pace, topics = context.pace, context.broker.readable_topics
    size = sum(len(each.metadata) for each in join.protocols)
    if not await context.broker.groups.has_room(group_id, size):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    try:
        found = await pace.run(decode_subscription_in_steps(join.protocols[0].metadata))
    except DecodeError:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    names, names_size = await distinct_names(found.topics, pace)
    if not await context.broker.groups.has_room(group_id, size + names_size):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return Subscribed(
        topic_names=await set_of_names(names, pace),
        rack_id=found.rack_id,
        owned={
            each.topic: frozenset({number async for number in pace.paced(each.partitions)})
            async for each in pace.paced(found.owned_partitions)
            if topics.get(each.topic) is not None
        },
    )


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

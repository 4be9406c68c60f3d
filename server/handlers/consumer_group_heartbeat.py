"""ConsumerGroupHeartbeat (key 68), v0-v1.

Behaviour: one API for the whole life of a member (KIP-848): epoch 0 joins, a positive epoch is a
heartbeat, -1 leaves, -2 leaves temporarily (static members). The broker answers immediately. The answer
includes the assignment if it has changed, or if the member sent all of its fields. Below group.version 1
(`server/metadata/features.py`) the answer is UNSUPPORTED_VERSION.
Versions: v1 subscribed_topic_regex, and clients choose their member ids (KIP-1082).
Source: Apache Kafka, GroupCoordinatorService.java `consumerGroupHeartbeat`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from functools import partial

from protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups import events
from server.coordination.groups.consumer.member import AWAY, JOINING, LEAVING
from server.coordination.groups.events import Beat
from server.coordination.groups.outcome import HeartbeatAnswer
from server.handlers.shared.subscribed_names import distinct_names, set_of_names
from server.metadata.features import GROUP_VERSION
from server.request_context import RequestContext
from server.runtime.turns import Pace
from server.security.acls import Operation, ResourceType
from server.security.api_rules import REFUSALS

MEMBER_ID_REQUIRED_SINCE = 1
TOO_MANY_NAMES = (
    "The names of the subscribed topics do not fit into one record: subscribe to fewer."
)


async def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Check the request by itself, then pass it to the group."""
    if not context.broker.features.levels[GROUP_VERSION]:
        return refuse(request, context, ErrorCode.UNSUPPORTED_VERSION, "")
    if not await _may_subscribe(request, context):
        return refuse(request, context, *REFUSALS[ResourceType.TOPIC])
    fault = _fault(request, context.header.api_version)
    if fault is not None:
        return refuse(request, context, ErrorCode.INVALID_REQUEST, fault)
    supported = context.broker.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in supported:
        text = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(supported)}."
        )
        return refuse(request, context, ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    beat = await _beat(request, context)
    if beat is None:
        return refuse(request, context, ErrorCode.UNKNOWN_SERVER_ERROR, TOO_MANY_NAMES)
    groups = context.broker.consumer_groups
    beaten = await groups.heartbeat(request.group_id, beat, context.pace)
    return _answer(beaten, context.pace)


def refuse(
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error_code, error_message=message or None)


async def _may_subscribe(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> bool:
    """Returns whether the client may describe every topic to which it subscribes by name."""
    async for name in context.pace.paced(request.subscribed_topic_names or ()):
        if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return False
    return True


def _fault(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """Returns why a request is invalid, in Kafka's words; None if it is valid."""
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if not request.member_id and (version >= MEMBER_ID_REQUIRED_SINCE or request.member_epoch):
        return "MemberId can't be empty."
    if request.member_epoch == JOINING:
        return _fault_of_joining(request)
    if request.member_epoch == AWAY and request.instance_id is None:
        return "InstanceId can't be null."
    if request.member_epoch < 0 and request.member_epoch not in (LEAVING, AWAY):
        return "MemberEpoch is invalid."
    return None


def _fault_of_joining(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


async def _beat(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Beat | None:
    """Returns the heartbeat for the group; None if its topic names do not fit into one record."""
    distinct, size = await distinct_names(request.subscribed_topic_names or (), context.pace)
    if not await context.broker.groups.has_room(request.group_id, size):
        return None
    is_named = request.subscribed_topic_names is not None
    names = await set_of_names(distinct, context.pace) if is_named else None
    return Beat(
        member_id=request.member_id or str(uuid.uuid4()),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=names,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=await _owned(request.topic_partitions, context.pace),
        client_id=context.header.client_id or "",
        # With a slash, as Java prints an address without a host name; tools expect that form.
        client_host=f"/{context.connection.client_host}",
        may_see=None if context.broker.authorizer is None else partial(_may_see, context),
    )


def _may_see(context: RequestContext, topic: str) -> bool:
    """Returns whether the client may describe a topic that its regular expression matches."""
    return context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True)


async def _owned(owned: tuple[TopicPartitions, ...] | None, pace: Pace) -> events.Assignment | None:
    if owned is None:
        return None
    return {
        each.topic_id: frozenset({number async for number in pace.paced(each.partitions)})
        async for each in pace.paced(owned)
        if each.partitions
    }


async def _answer(
    beating: Awaitable[HeartbeatAnswer], pace: Pace
) -> ConsumerGroupHeartbeatResponse:
    beaten = await beating
    assignment = beaten.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=beaten.error_code,
        error_message=beaten.message or (beaten.error_code.message if beaten.error_code else None),
        member_id=beaten.member_id,
        member_epoch=beaten.member_epoch,
        heartbeat_interval_ms=beaten.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else Assignment(
            topic_partitions=tuple(
                [
                    TopicPartitions(topic_id=topic, partitions=tuple(sorted(numbers)))
                    async for topic, numbers in pace.paced(assignment.items())
                ]
            )
        ),
    )

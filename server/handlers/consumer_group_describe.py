"""ConsumerGroupDescribe (key 69), v0-v1.

Behaviour: describes each requested group. A group of the classic protocol counts as not found (it is
DescribeGroups that describes it). Assignments leave out topics that no longer exist.
Versions: v1 member_type (KIP-1099).
Source: Apache Kafka, ConsumerGroup.java `asDescribedGroup`.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.groups import events
from server.coordination.groups.consumer.group import ConsumerGroup
from server.coordination.groups.consumer.member import ConsumerMember
from server.handlers.shared.answers import answers
from server.metadata.features import GROUP_VERSION
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType
from server.security.api_rules import REFUSALS

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""The types of members, by the group protocol that they use."""


HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe each requested group."""
    if not context.broker.features.levels[GROUP_VERSION]:
        code = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=tuple(
                [
                    _failed(group_id, code, code.message)
                    async for group_id in context.pace.paced(request.group_ids)
                ]
            )
        )
    is_asked = request.include_authorized_operations
    groups = await answers(
        context.pace, request.group_ids, lambda group_id: _describe(group_id, is_asked, context)
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def refuse(
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> ConsumerGroupDescribeResponse:
    text = message or error_code.message
    return ConsumerGroupDescribeResponse(
        groups=lazy_array(lambda each: _failed(each, error_code, text), request.group_ids)
    )


def _describe(group_id: str, is_asked: bool, context: RequestContext) -> DescribedGroup:
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _failed(group_id, *REFUSALS[ResourceType.GROUP])
    if not group_id:
        return _failed(group_id, ErrorCode.INVALID_GROUP_ID, None)
    group = context.broker.groups.describe(group_id)
    if isinstance(group, ErrorCode):
        return _failed(group_id, group, group.message)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return _failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    members = tuple(_member(member, group) for member in group.data.members.values())
    if not _may_see(members, context):
        return _failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.data.epoch,
        assignment_epoch=group.data.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
        authorized_operations=context.operations_on(
            ResourceType.GROUP, group_id, is_asked=is_asked
        ),
    )


def _may_see(members: Iterable[Member], context: RequestContext) -> bool:
    """Returns whether the client may describe every topic of the members."""
    if context.broker.authorizer is None:
        return True
    names: set[str] = set()
    for member in members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
    return all(context.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)


def _member(member: ConsumerMember, group: ConsumerGroup) -> Member:
    target = group.data.targets.get(member.member_id, {})
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assignment, group),
        target_assignment=_assignment(target, group),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assigned: events.Assignment, group: ConsumerGroup) -> Assignment:
    known = ((group.topics.by_id(topic), numbers) for topic, numbers in assigned.items())
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic.id, topic_name=topic.name, partitions=tuple(sorted(numbers))
            )
            for topic, numbers in known
            if topic is not None
        )
    )


def _failed(group_id: str, error_code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )

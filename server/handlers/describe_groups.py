"""DescribeGroups (key 15), v0-v6.

Behaviour: describes each requested group. The metadata of members are included while the group is
stable; assignments always, so that during a rebalance each member shows its last one, as in Kafka. A
group of the consumer protocol counts as not found (ConsumerGroupDescribe describes it).
Versions: v3 authorized operations (KIP-430) · v4 group_instance_id · v6 an unknown group is an error
(KIP-1043); before, its state is Dead.
"""

from __future__ import annotations

from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.coordination.groups.classic.group import Group, GroupState
from server.coordination.groups.consumer.group import ConsumerGroup
from server.handlers.shared.answers import answers
from server.request_context import RequestContext
from server.security.acls import Operation, ResourceType

NOT_FOUND_SINCE = 6
DEAD = "Dead"


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each requested group."""
    is_asked = request.include_authorized_operations
    groups = await answers(
        context.pace, request.groups, lambda group_id: _describe(group_id, is_asked, context)
    )
    return DescribeGroupsResponse(groups=groups)


def refuse(
    request: DescribeGroupsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=lazy_array(
            lambda group_id: _failed(group_id, error_code, context, message=message),
            request.groups,
        )
    )


def _describe(group_id: str, is_asked: bool, context: RequestContext) -> DescribedGroup:
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, context)
    group = context.broker.groups.describe(group_id)
    if isinstance(group, ErrorCode):
        return _failed(group_id, group, context)
    if group is None:
        return _not_found(group_id, f"Group {group_id} not found.", context)
    if isinstance(group, ConsumerGroup):
        return _not_found(group_id, f"Group {group_id} is not a classic group.", context)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.roster.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=_members(group, is_stable=is_stable),
        authorized_operations=context.operations_on(
            ResourceType.GROUP, group_id, is_asked=is_asked
        ),
    )


def _members(group: Group, *, is_stable: bool) -> tuple[DescribedGroupMember, ...]:
    return tuple(
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.roster
    )


def _not_found(group_id: str, message: str, context: RequestContext) -> DescribedGroup:
    is_error = context.header.api_version >= NOT_FOUND_SINCE
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE
    return _failed(group_id, code, context, state=DEAD, message=message)


def _failed(
    group_id: str,
    error_code: ErrorCode,
    context: RequestContext,
    *,
    state: str = "",
    message: str = "",
) -> DescribedGroup:
    has_message = context.header.api_version >= NOT_FOUND_SINCE and error_code
    return DescribedGroup(
        error_code=error_code,
        error_message=message or error_code.message if has_message else None,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )

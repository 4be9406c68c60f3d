"""DescribeGroups (key 15), v0-v6.

Behaviour: each group is answered. What members want and have to do is told while the group is stable.
One of the consumer protocol is none here (ConsumerGroupDescribe).
Versions: v3 authorized operations (KIP-430) · v4 group_instance_id · v6 a group that is not there is
an error (KIP-1043); before, its state is Dead.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from server import allowed_operations
from server.answers import answers
from server.dispatch import RequestContext
from server.groups.consumer_group import ConsumerGroup
from server.groups.group import Group, GroupState

NOT_FOUND_SINCE = 6
DEAD = "Dead"


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each group that was asked for."""
    allowed = allowed_operations.on_group(is_asked=request.include_authorized_operations)
    groups = await answers(
        context.pace, request.groups, lambda group_id: _described(group_id, allowed, context)
    )
    return DescribeGroupsResponse(groups=groups)


def refuse(
    request: DescribeGroupsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=tuple(_undescribed(group_id, error_code, context) for group_id in request.groups)
    )


def _described(group_id: str, allowed: int, context: RequestContext) -> DescribedGroup:
    group = context.broker.groups.describe(group_id)
    if isinstance(group, ErrorCode):
        return _undescribed(group_id, group, context)
    if group is None:
        return _absent(group_id, f"Group {group_id} not found.", context)
    if isinstance(group, ConsumerGroup):
        return _absent(group_id, f"Group {group_id} is not a classic group.", context)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.roster.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=_members(group, is_stable=is_stable),
        authorized_operations=allowed,
    )


def _members(group: Group, *, is_stable: bool) -> tuple[DescribedGroupMember, ...]:
    return tuple(
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.roster
    )


def _absent(group_id: str, message: str, context: RequestContext) -> DescribedGroup:
    is_error = context.header.api_version >= NOT_FOUND_SINCE
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE
    return _undescribed(group_id, code, context, state=DEAD, message=message)


def _undescribed(
    group_id: str,
    error_code: ErrorCode,
    context: RequestContext,
    *,
    state: str = "",
    message: str = "",
) -> DescribedGroup:
    tells = context.header.api_version >= NOT_FOUND_SINCE and error_code
    return DescribedGroup(
        error_code=error_code,
        error_message=message or error_code.message if tells else None,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )

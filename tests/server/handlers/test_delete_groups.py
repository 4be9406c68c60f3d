"""DeleteGroups: each group is answered; those with members stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.wire.error_codes import ErrorCode
from tests.harness.group_requests import AT_ONCE, stabilize
from tests.harness.served_broker import ServedBroker, serving_broker


async def empty(served: ServedBroker, group_id: str) -> None:
    member_id = (await stabilize(served, group_id)).member_id
    members = (MemberIdentity(member_id=member_id),)
    request = LeaveGroupRequest(group_id=group_id, members=members)
    await served.call(request, 5, LeaveGroupResponse)


@pytest.mark.parametrize("version", range(3))
async def test_groups_without_members_go(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served, "stable")
        await empty(served, "empty")
        request = DeleteGroupsRequest(groups_names=("stable", "empty", "other", "empty"))
        response = await served.call(request, version, DeleteGroupsResponse)
        assert served.broker.groups.describe("empty") is None
    assert [(each.group_id, each.error_code) for each in response.results] == [
        ("stable", ErrorCode.NON_EMPTY_GROUP),
        ("empty", ErrorCode.NONE),
        ("other", ErrorCode.GROUP_ID_NOT_FOUND),
    ]

"""LeaveGroup: one member up to v2, several from v3 on."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.wire.error_codes import ErrorCode
from server.coordination.groups.classic.group import Group, GroupState
from tests.harness.group_requests import AT_ONCE, stabilize
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(3))
async def test_one_member_leaves(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        request = LeaveGroupRequest(group_id="group", member_id=(await stabilize(served)).member_id)
        first = await served.call(request, version, LeaveGroupResponse)
        again = await served.call(request, version, LeaveGroupResponse)
    assert first.error_code == ErrorCode.NONE
    assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
async def test_each_of_several_is_answered(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        member_id = (await stabilize(served)).member_id
        members = (
            MemberIdentity(member_id="stranger"),
            MemberIdentity(member_id=member_id),
            MemberIdentity(member_id="", group_instance_id="nobody"),
        )
        request = LeaveGroupRequest(group_id="group", members=members)
        response = await served.call(request, version, LeaveGroupResponse)
        group = served.broker.groups.describe("group")
        assert isinstance(group, Group)
        assert group.state is GroupState.EMPTY
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert response.error_code == ErrorCode.NONE
    assert [each.member_id for each in response.members] == ["stranger", member_id, ""]
    assert [each.error_code for each in response.members] == [unknown, 0, unknown]


@pytest.mark.parametrize("version", range(6))
async def test_a_group_without_a_name_is_refused(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path) as served:
        request = LeaveGroupRequest(group_id="")
        response = await served.call(request, version, LeaveGroupResponse)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID

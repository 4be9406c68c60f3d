"""DescribeGroups: every group that was asked for is answered, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.group_requests import AT_ONCE, join, stabilize
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(7))
async def test_a_stable_group_shows_what_its_members_want_and_do(
    tmp_path: Path, version: int
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        joined = await stabilize(served)
        await join(served, "joining")
        request = DescribeGroupsRequest(groups=("group", "joining", "other"))
        response = await served.call(request, version, DescribeGroupsResponse)
    stable, joining, missing = response.groups

    assert (stable.error_code, stable.group_state) == (0, "Stable")
    assert (stable.protocol_type, stable.protocol_data) == ("consumer", "range")
    (member,) = stable.members
    assert member.member_id == joined.member_id
    assert member.client_host == "/127.0.0.1"
    assert (member.member_metadata, member.member_assignment) == (
        b"topics",
        joined.member_id.encode(),
    )
    assert (joining.group_state, joining.members[0].member_metadata) == ("CompletingRebalance", b"")
    assert missing.group_state == "Dead"
    if version < 6:
        assert missing.error_code == ErrorCode.NONE
    else:
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert missing.error_message == "Group other not found."


async def test_who_asks_is_told_what_may_be_done(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served)
        request = DescribeGroupsRequest(groups=("group",), include_authorized_operations=True)
        response = await served.call(request, 5, DescribeGroupsResponse)
    assert response.groups[0].authorized_operations == 0b110101001000

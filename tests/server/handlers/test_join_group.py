"""JoinGroup: who is let in, in every version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.wire.error_codes import ErrorCode
from tests.harness.group_requests import AT_ONCE, VERSION, join, join_request, stabilize
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_leads_and_is_told_of_itself(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        joined = await join(served, version=version)
    assert joined.error_code == ErrorCode.NONE
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.members[0].metadata == b"topics"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize(
    ("group_id", "session_timeout_ms", "code"),
    [
        ("", 10_000, ErrorCode.INVALID_GROUP_ID),
        ("group", 5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("group", 1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
async def test_what_the_broker_does_not_allow_is_refused(
    tmp_path: Path, version: int, group_id: str, session_timeout_ms: int, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path) as served:
        request = join_request(group_id, session_timeout_ms=session_timeout_ms)
        response = await served.call(request, version, JoinGroupResponse)
        assert response.error_code == code
        assert response.protocol_name == (None if version >= 7 else "")
        assert served.broker.topics.get("__consumer_offsets") is None


async def test_who_waits_is_answered_when_it_is_sent_away(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        await stabilize(served)
        asked = await served.call(join_request(), VERSION, JoinGroupResponse)
        again = join_request(member_id=asked.member_id)
        waiting = asyncio.create_task(served.call(again, VERSION, JoinGroupResponse))
        members = (MemberIdentity(member_id=asked.member_id),)
        leave = LeaveGroupRequest(group_id="group", members=members)
        left = await served.call(leave, 5, LeaveGroupResponse)
        answer = await asyncio.wait_for(waiting, 10)
    assert left.members[0].error_code == ErrorCode.NONE
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_is_named_after_its_instance(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        request = join_request(instance_id="first")
        response = await served.call(request, VERSION, JoinGroupResponse)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id.startswith("first-")
    assert response.members[0].group_instance_id == "first"

"""Heartbeat: who is in the group's generation, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.group_requests import AT_ONCE, stabilize
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(5))
async def test_a_member_is_told_that_its_generation_holds(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        joined = await stabilize(served)

        async def beat(group_id: str, member_id: str, generation: int) -> int:
            request = HeartbeatRequest(
                group_id=group_id, generation_id=generation, member_id=member_id
            )
            return (await served.call(request, version, HeartbeatResponse)).error_code

        assert await beat("group", joined.member_id, 1) == ErrorCode.NONE
        assert await beat("group", joined.member_id, 2) == ErrorCode.ILLEGAL_GENERATION
        assert await beat("group", "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await beat("other", joined.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await beat("", joined.member_id, 1) == ErrorCode.INVALID_GROUP_ID

"""SyncGroup: everybody gets what the leader gave it, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.sync_group import SyncGroupResponse
from protocol.wire.error_codes import ErrorCode
from tests.harness.group_requests import AT_ONCE, join, sync_request
from tests.harness.served_broker import serving_broker


@pytest.mark.parametrize("version", range(6))
async def test_the_leader_gets_its_part(tmp_path: Path, version: int) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        joined = await join(served)
        synced = await served.call(sync_request(joined), version, SyncGroupResponse)
    assert synced.error_code == ErrorCode.NONE
    assert synced.assignment == joined.member_id.encode()
    assert synced.protocol_name == ("range" if version >= 5 else None)


async def test_a_member_that_believes_in_another_protocol_is_refused(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        joined = await join(served)
        request = sync_request(joined, protocol_name="sticky")
        synced = await served.call(request, 5, SyncGroupResponse)
    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("group_id", ["group", "other"])
async def test_since_version_5_a_member_must_name_its_protocol(
    tmp_path: Path, group_id: str
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        request = sync_request(await join(served), group_id, protocol_name=None)
        synced = await served.call(request, 5, SyncGroupResponse)
    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("group_id", "code"),
    [("", ErrorCode.INVALID_GROUP_ID), ("other", ErrorCode.UNKNOWN_MEMBER_ID)],
)
async def test_a_group_that_is_not_there_knows_no_member(
    tmp_path: Path, group_id: str, code: ErrorCode
) -> None:
    async with serving_broker(tmp_path, **AT_ONCE) as served:
        request = sync_request(await join(served), group_id)
        synced = await served.call(request, 5, SyncGroupResponse)
    assert synced.error_code == code

"""DescribeUserScramCredentials: no user has any."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from protocol.wire.error_codes import ErrorCode
from tests.harness.served_broker import serving_broker


async def ask(directory: Path, *names: str) -> DescribeUserScramCredentialsResponse:
    users = tuple(UserName(name=name) for name in names) or None
    async with serving_broker(directory) as served:
        request = DescribeUserScramCredentialsRequest(users=users)
        return await served.call(request, 0, DescribeUserScramCredentialsResponse)


async def test_of_all_users_there_is_none(tmp_path: Path) -> None:
    response = await ask(tmp_path)
    assert (response.error_code, response.results) == (ErrorCode.NONE, ())


async def test_each_user_that_is_named_is_answered(tmp_path: Path) -> None:
    response = await ask(tmp_path, "alice", "bob", "alice")
    assert [(each.user, each.error_code) for each in response.results] == [
        ("alice", ErrorCode.DUPLICATE_RESOURCE),
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
    ]
    assert all(each.user in (each.error_message or "") for each in response.results)

"""DescribeUserScramCredentials: which users have which mechanisms, and no secret part."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from protocol.wire.error_codes import ErrorCode
from server.security.scram_credentials import ScramMechanism
from tests.harness.sasl_login import set_password
from tests.harness.served_broker import ServedBroker, serving_broker


async def ask(served: ServedBroker, *names: str) -> DescribeUserScramCredentialsResponse:
    users = tuple(UserName(name=name) for name in names) or None
    request = DescribeUserScramCredentialsRequest(users=users)
    return await served.call(request, 0, DescribeUserScramCredentialsResponse)


async def test_without_users_there_is_none(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        response = await ask(served)
    assert (response.error_code, response.results) == (ErrorCode.NONE, ())


async def test_all_users_are_listed_by_name_with_their_mechanisms(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await set_password(served, "bob", mechanism=ScramMechanism.SHA_512)
        await set_password(served, "bob")
        await set_password(served, "alice")
        response = await ask(served)
        infos = {
            each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
            for each in response.results
        }
    assert infos == {"alice": [(1, 4096)], "bob": [(1, 4096), (2, 4096)]}
    assert list(infos) == ["alice", "bob"]


async def test_each_user_that_is_named_is_answered(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await set_password(served, "carol")
        response = await ask(served, "alice", "bob", "alice", "carol")
    assert [(each.user, each.error_code) for each in response.results] == [
        ("alice", ErrorCode.DUPLICATE_RESOURCE),
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
        ("carol", ErrorCode.NONE),
    ]
    assert all(each.user in (each.error_message or "") for each in response.results[:2])
    assert [info.mechanism for info in response.results[2].credential_infos] == [1]

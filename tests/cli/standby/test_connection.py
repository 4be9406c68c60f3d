"""A break is waited for, except where another connection would not help."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn, cast

import pytest

from cli.base.broker_client import BrokerClient
from cli.base.command_end import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from cli.standby import connection
from cli.standby.connection import Break, Retry, follow_until_broken
from cli.standby.copy_thread import Ended
from cli.standby.requests import Refused
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def at_once(_: str) -> AsyncIterator[BrokerClient]:
        yield cast("BrokerClient", None)

    monkeypatch.setattr(connection, "connected", at_once)


async def followed(error: Exception) -> Break:
    async def follow(_: BrokerClient) -> NoReturn:
        raise error

    return await follow_until_broken("leader:9095", follow)


@pytest.mark.parametrize(
    ("error", "reason", "at_least_s"),
    [
        (Retry("others are downloading", 2.0), "others are downloading", 2.0),
        (CommandFailed(EXIT_UNREACHABLE, "no route"), "no route", 0.0),
        (ProtocolError("garbage"), "leader:9095 answered what no leader answers: garbage", 0.0),
    ],
)
async def test_a_break_says_why_and_how_long_to_wait(
    error: Exception, reason: str, at_least_s: float
) -> None:
    assert await followed(error) == Break(reason, at_least_s)


async def test_a_refusal_is_waited_for_as_long_as_the_leader_says() -> None:
    found = await followed(Refused(ErrorCode.KAFKA_STORAGE_ERROR, throttle_ms=1500))

    assert found.reason.startswith("KAFKA_STORAGE_ERROR: ")
    assert found.at_least_s == 1.5


@pytest.mark.parametrize(
    "error", [CommandFailed(EXIT_USAGE, "no such option"), Ended("the disk failed")]
)
async def test_what_another_connection_would_not_help_is_raised(error: CommandFailed) -> None:
    with pytest.raises(CommandFailed) as raised:
        await followed(error)
    assert raised.value is error

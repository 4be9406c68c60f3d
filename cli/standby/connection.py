"""Follows over one connection until it breaks: raises what ends the standby, returns all else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.standby.copy_thread import Ended
from cli.standby.requests import Refused
from protocol.wire.errors import ProtocolError


class Retry(CommandFailed):
    """The connection ends, and another one is tried later."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(EXIT_FAILED, message)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Break:
    """Why a connection has ended."""

    reason: str
    at_least_s: float = 0.0
    """How long to wait at least, in seconds, before the next one."""


async def follow_until_broken(
    leader: str, follow: Callable[[BrokerClient], Awaitable[NoReturn]]
) -> Break:
    """Connect to a leader and follow it. Returns why that has ended.

    Args:
        leader: host:port.
        follow: ends by an error only.

    Raises:
        CommandFailed: another connection would not help: the options are wrong, or it is Ended.
    """
    try:
        async with connected(leader) as client:
            await follow(client)
    except Retry as retry:
        return Break(str(retry), retry.seconds)
    except Refused as refused:
        return Break(str(refused), refused.throttle_ms / 1000)
    except CommandFailed as error:
        if error.exit_code == EXIT_USAGE or isinstance(error, Ended):
            raise
        return Break(str(error))
    except ProtocolError as error:
        return Break(f"{leader} answered what no leader answers: {error}")

"""The commands' client of a broker. Its errors end the command, with advice about the options."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from cli.base.access import current
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.client import broker_client
from server.client.errors import (
    BadAddress,
    ClientFailed,
    Misconfigured,
    NoneAdvertised,
    NotABroker,
    NoTls,
    Unreachable,
)

M = TypeVar("M", bound=Message)
A = TypeVar("A")

LOAD_SECONDS_MAX, LOAD_PAUSE_SECONDS = 30.0, 0.2

EXIT_CODES: tuple[tuple[type[ClientFailed], int, str], ...] = (
    (BadAddress, EXIT_USAGE, " ({option})"),
    (Misconfigured, EXIT_USAGE, ""),
    (NoTls, EXIT_UNREACHABLE, ""),
    (
        NotABroker,
        EXIT_UNREACHABLE,
        "; if its listener requires TLS or a login, say so with --command-config",
    ),
    (NoneAdvertised, EXIT_UNREACHABLE, "; kompakt doctor gives details"),
    (
        Unreachable,
        EXIT_UNREACHABLE,
        ": is it running, and is that its listener? Choose another with {option}",
    ),
    (ClientFailed, EXIT_FAILED, ""),
)
"""The exit code of each kind of error, and the advice after its sentence: the first one counts."""

ADDRESS_OPTION: ContextVar[str] = ContextVar("ADDRESS_OPTION", default="--bootstrap-server")
"""The option of the running command that names the broker."""


class BrokerClient(broker_client.BrokerClient):
    """Sends requests to one broker. Created by `connected`. All methods raise CommandFailed."""

    __slots__ = ()

    async def check_advertised(self) -> None:
        with advising():
            await super().check_advertised()

    async def call(
        self, request: Message, response_type: type[M], *, version_max: int | None = None
    ) -> M:
        with advising():
            return await super().call(request, response_type, version_max=version_max)


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[BrokerClient]:
    """Yields a client of the first broker in `host:port,...` that answers, logged in.

    It connects as `cli/base/access.py` says for the running command.

    Raises:
        CommandFailed: no broker answers, or it refuses the login.
    """
    access = current()
    with advising():
        client = await broker_client.connect(bootstrap, access, BrokerClient)
    try:
        yield client
    finally:
        client.close()


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of `host:port`, `[v6]:port` or a host alone. Raises CommandFailed."""
    with advising():
        return broker_client.parse_address(text)


@contextmanager
def advising() -> Iterator[None]:
    """Turn a client's error into the end of the command."""
    try:
        yield
    except ClientFailed as error:
        for kind, exit_code, advice in EXIT_CODES:
            if isinstance(error, kind):
                advice = advice.format(option=ADDRESS_OPTION.get())
                raise CommandFailed(exit_code, f"{error}{advice}") from error
        raise


async def ask_until_loaded(
    ask: Callable[[], Awaitable[A]],
    code_of: Callable[[A], int],
    *,
    seconds_max: float = LOAD_SECONDS_MAX,
) -> A:
    """Repeat a request until the broker has loaded its groups, and return the answer.

    A broker loads its groups shortly after its start. Returns the last answer, with
    COORDINATOR_LOAD_IN_PROGRESS, if that takes longer than `seconds_max`.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        answer = await ask()
        is_loading = code_of(answer) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if not is_loading or time.monotonic() >= deadline:
            return answer
        await asyncio.sleep(LOAD_PAUSE_SECONDS)

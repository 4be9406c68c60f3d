"""A client with one connection to a broker, for commands. It sends one request at a time.

It uses the same message definitions as the broker (`protocol/messages`), and the highest version of
each request that both sides support, so it can talk to older and newer releases and to Apache Kafka.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from cleaner.rules.text import count_text
from cli.base.access import Access, current
from cli.base.command_end import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from cli.base.log_in import log_in
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.primitives import skip_tagged_fields
from protocol.wire.schema import Message, Part

M = TypeVar("M", bound=Message)
A = TypeVar("A")

CONNECT_SECONDS_MAX = 5.0
CALL_SECONDS_MAX = 60.0
FRAME_BYTES_MAX = 1 << 30
CLIENT_ID = b"kompakt"
DEFAULT_PORT = 9092
VERSION_ASKED_WITH = 0
"""The version of ApiVersions to send: every broker answers it, and later ones add nothing we use."""

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(f">hhih{len(CLIENT_ID)}s")
_TAGGED_MAX = 100
LOAD_SECONDS_MAX, LOAD_PAUSE_SECONDS = 30.0, 0.2


class BrokerClient:
    """Sends requests to one broker. Created by `connected`."""

    __slots__ = ("_address", "_correlation_id", "_reader", "_versions", "_writer")

    def __init__(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # Constant after construction.
        self._address = address
        self._reader = reader
        self._writer = writer
        # State.
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {
            ApiKey.API_VERSIONS: (VERSION_ASKED_WITH, VERSION_ASKED_WITH)
        }

    def serves(self, key: ApiKey) -> bool:
        """Returns whether the broker and this release have a version of an API in common."""
        return key in APIS and self._version_of(key) is not None

    async def learn_versions(self) -> None:
        """Ask the broker which versions it serves. Raises CommandFailed."""
        answer = await self.call(ApiVersionsRequest(), ApiVersionsResponse)
        self._versions |= {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    async def check_advertised(self) -> None:
        """Check that at least one broker can be reached at its advertised address.

        Raises:
            CommandFailed: none can, which is the most common mistake of a setup.
        """
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        brokers = (await self.call(request, MetadataResponse)).brokers
        failures = []
        for broker in brokers:
            try:
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    _, writer = await asyncio.open_connection(broker.host, broker.port)
            except (OSError, TimeoutError) as error:
                failures.append(f"{broker.host}:{broker.port} ({_reason(error)})")
            else:
                writer.close()
                return
        raise CommandFailed(
            EXIT_UNREACHABLE,
            f"the broker at {self._address} sends clients to {', '.join(failures)}, where no broker"
            " answers: fix its advertised.listeners; kompakt doctor gives details",
        )

    async def call(
        self, request: Message, response_type: type[M], *, version_max: int | None = None
    ) -> M:
        """Send a request and return the response.

        `version_max` limits the version, for requests whose later versions mean something else.

        Raises:
            CommandFailed: the broker does not serve the API, closes the connection, does not answer
                in time, or sends an invalid response.
        """
        api = APIS[request.api_key]
        version = self._version_of(api.key, version_max)
        if version is None:
            raise CommandFailed(
                EXIT_FAILED, f"the broker at {self._address} does not support {api.name}"
            )
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                await self._send(request, version)
                return self._read(await self._receive(), response_type, version)
        except (OSError, EOFError, TimeoutError, ProtocolError) as error:
            raise CommandFailed(EXIT_UNREACHABLE, _no_answer(self._address, error)) from error

    def _version_of(self, key: ApiKey, version_max: int | None = None) -> int | None:
        """Returns the highest version that both sides support, or None."""
        if key not in self._versions:
            return None
        low, high = self._versions[key]
        ours = APIS[key].version_max
        version = min(high, ours if version_max is None else version_max)
        return version if version >= max(low, APIS[key].served_min) else None

    async def _send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        header = bytearray(
            _HEADER.pack(request.api_key, version, self._correlation_id, len(CLIENT_ID), CLIENT_ID)
        )
        if version >= request.flexible_since:
            header.append(0)
        payload = b"".join(map(_part_bytes, encode(request, version, header)))
        self._writer.write(_SIZE.pack(len(payload)) + payload)
        await self._writer.drain()

    async def _receive(self) -> memoryview:
        (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
        if not _SIZE.size <= size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {count_text(size, 'byte')}")
        return memoryview(await self._reader.readexactly(size))

    def _read(self, frame: memoryview, response_type: type[M], version: int) -> M:
        (correlation_id,) = _SIZE.unpack_from(frame)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"an answer to request {correlation_id}")
        position = _SIZE.size
        if version >= response_type.flexible_since and response_type.api_key != ApiKey.API_VERSIONS:
            position, _ = skip_tagged_fields(frame, position, _TAGGED_MAX)
        return decode(response_type, version, frame, position)


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[BrokerClient]:
    """Yields a client of the first broker in `host:port,...` that answers, logged in.

    It connects as `cli/base/access.py` says for the running command.

    Raises:
        CommandFailed: no broker answers, or it refuses the login.
    """
    access = current()
    address, reader, writer = await _connect(bootstrap, access)
    try:
        client = BrokerClient(address, reader, writer)
        await client.learn_versions()
        if access.login is not None:
            await log_in(client, access)
        yield client
    finally:
        writer.close()


async def _connect(
    bootstrap: str, access: Access
) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    failures = []
    for address in filter(None, map(str.strip, bootstrap.split(","))):
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                return address, *await asyncio.open_connection(host, port, ssl=access.tls)
        except (OSError, TimeoutError) as error:
            failures.append(_no_answer(address, error))
    if not failures:
        raise CommandFailed(EXIT_USAGE, "--bootstrap-server names no broker: write host:port")
    raise CommandFailed(EXIT_UNREACHABLE, "; ".join(failures))


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of `host:port`, `[v6]:port` or a host alone. Raises CommandFailed."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or not host or "/" in host:
        raise CommandFailed(EXIT_USAGE, f"{text} is not host:port (--bootstrap-server)")
    return host.strip("[]"), int(port)


def _no_answer(address: str, error: BaseException) -> str:
    if isinstance(error, ProtocolError | EOFError):
        return (
            f"the server at {address} is not a Kafka broker, or it closed the connection ({error});"
            " if its listener requires TLS or a login, say so with --command-config"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection to {address}: {_tls_reason(error)}"
    return (
        f"no broker answers at {address} ({_reason(error)}):"
        " is it running, and is that its listener? Choose another with --bootstrap-server"
    )


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted, {error.verify_message}"
    return f"is that a TLS listener? ({error.reason or error})"


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved: {error.strerror}"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


def _part_bytes(part: Part) -> bytes:
    # Regions of files occur in responses only.
    assert isinstance(part, bytes | bytearray | memoryview)
    return bytes(part)


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

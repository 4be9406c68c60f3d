"""One connection to a broker, for commands: requests out, responses in, one at a time.

The messages are the broker's own (`protocol/messages`). The version of a request is the highest that
both sides have, so a release may talk to an older or a newer one, and to Apache Kafka.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from cleaner.text import count_text
from protocol.api_keys import APIS, ApiKey
from protocol.decode import decode
from protocol.encode import encode
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.primitives import skip_tagged_fields
from protocol.schema import Message, Part
from server.command_end import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed

M = TypeVar("M", bound=Message)
A = TypeVar("A")

CONNECT_SECONDS_MAX = 5.0
CALL_SECONDS_MAX = 60.0
FRAME_BYTES_MAX = 1 << 30
CLIENT_ID = b"kompakt"
DEFAULT_PORT = 9092
VERSION_ASKED_WITH = 0
"""Of ApiVersions: every broker answers it, and no later one tells us more that we use."""

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(f">hhih{len(CLIENT_ID)}s")
_TAGGED_MAX = 100
LOAD_SECONDS_MAX, LOAD_PAUSE_SECONDS = 30.0, 0.2


class BrokerClient:
    """Asks one broker. Made by `connected`."""

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
        """Whether the broker and this release have a version of an API in common."""
        return key in APIS and self._version_of(key) is not None

    async def learn_versions(self) -> None:
        """Ask what the broker serves. Raises CommandFailed."""
        answer = await self.call(ApiVersionsRequest(), ApiVersionsResponse)
        self._versions |= {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    async def check_advertised(self) -> None:
        """See that clients get to where they are sent from here, at least to one broker.

        Raises:
            CommandFailed: they do not: the most common mistake of all.
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
            f"the broker at {self._address} sends clients to {', '.join(failures)}, where none"
            " answers: put its advertised.listeners right; kompakt doctor tells more",
        )

    async def call(
        self, request: Message, response_type: type[M], *, version_max: int | None = None
    ) -> M:
        """The broker's answer, in a version up to `version_max` if later ones ask otherwise.

        Raises:
            CommandFailed: the broker does not serve that, goes away, is silent, or says what is no
                answer to it.
        """
        api = APIS[request.api_key]
        version = self._version_of(api.key, version_max)
        if version is None:
            raise CommandFailed(EXIT_FAILED, f"the broker at {self._address} has no {api.name}")
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                await self._send(request, version)
                return self._read(await self._receive(), response_type, version)
        except (OSError, EOFError, TimeoutError, ProtocolError) as error:
            raise CommandFailed(EXIT_UNREACHABLE, _no_answer(self._address, error)) from error

    def _version_of(self, key: ApiKey, version_max: int | None = None) -> int | None:
        """The highest that both sides have."""
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
        payload = b"".join(map(_in_memory, encode(request, version, header)))
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
    """A client of the first broker of `host:port,...` that answers. Raises CommandFailed."""
    address, reader, writer = await _connect(bootstrap)
    try:
        client = BrokerClient(address, reader, writer)
        await client.learn_versions()
        yield client
    finally:
        writer.close()


async def _connect(bootstrap: str) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    failures = []
    for address in filter(None, map(str.strip, bootstrap.split(","))):
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                return address, *await asyncio.open_connection(host, port)
        except (OSError, TimeoutError) as error:
            failures.append(_no_answer(address, error))
    if not failures:
        raise CommandFailed(EXIT_USAGE, "--bootstrap-server names no broker: write host:port")
    raise CommandFailed(EXIT_UNREACHABLE, "; ".join(failures))


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or just a host. Raises CommandFailed."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or not host or "/" in host:
        raise CommandFailed(EXIT_USAGE, f"{text} is not host:port (--bootstrap-server)")
    return host.strip("[]"), int(port)


def _no_answer(address: str, error: BaseException) -> str:
    if isinstance(error, ProtocolError | EOFError):
        return f"what answers at {address} is no Kafka broker, or it went away ({error})"
    return (
        f"no broker answers at {address} ({_reason(error)}):"
        " is it running, and is that its listener? --bootstrap-server names another"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name is not known: {error.strerror}"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)


def _in_memory(part: Part) -> bytes:
    """A part of a request; regions of files are for responses only."""
    assert isinstance(part, bytes | bytearray | memoryview)
    return bytes(part)


async def loaded(
    ask: Callable[[], Awaitable[A]],
    code_of: Callable[[A], int],
    *,
    seconds_max: float = LOAD_SECONDS_MAX,
) -> A:
    """The answer of a broker that has read its groups, as it does for a moment after its start.

    The last answer, if that takes longer than `seconds_max`.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        answer = await ask()
        is_loading = code_of(answer) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if not is_loading or time.monotonic() >= deadline:
            return answer
        await asyncio.sleep(LOAD_PAUSE_SECONDS)

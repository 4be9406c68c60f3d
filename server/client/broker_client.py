"""A client with one connection to a broker. It sends one request at a time.

It uses the same message definitions as the broker (`protocol/messages`), and the highest version of
each request that both sides support, so it can talk to older and newer releases and to Apache Kafka.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.errors import ProtocolError
from protocol.wire.primitives import skip_tagged_fields
from protocol.wire.schema import Message, Part
from server.client.access import Access
from server.client.errors import (
    BadAddress,
    ClientFailed,
    NoneAdvertised,
    NotABroker,
    NoTls,
    Unreachable,
)
from server.client.frames import Frames
from server.client.log_in import log_in

M = TypeVar("M", bound=Message)
C = TypeVar("C", bound="BrokerClient")

CONNECT_SECONDS_MAX = 5.0
CALL_SECONDS_MAX = 60.0
CLIENT_ID = b"kompakt"
DEFAULT_PORT = 9092
VERSION_ASKED_WITH = 0
"""The version of ApiVersions to send: every broker answers it, and later ones add nothing we use."""

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(f">hhih{len(CLIENT_ID)}s")
_TAGGED_MAX = 100


class BrokerClient:
    """Sends requests to one broker. Created by `connected` or `connect`."""

    __slots__ = ("_address", "_correlation_id", "_frames", "_versions")

    def __init__(self, address: str, frames: Frames) -> None:
        # Constant after construction.
        self._address = address
        self._frames = frames
        # State.
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {
            ApiKey.API_VERSIONS: (VERSION_ASKED_WITH, VERSION_ASKED_WITH)
        }

    def serves(self, key: ApiKey) -> bool:
        """Returns whether the broker and this release have a version of an API in common."""
        return key in APIS and self._version_of(key) is not None

    def close(self) -> None:
        """Close the connection."""
        self._frames.close()

    async def learn_versions(self) -> None:
        """Ask the broker which versions it serves. Raises ClientFailed."""
        answer = await self.call(ApiVersionsRequest(), ApiVersionsResponse)
        self._versions |= {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    async def check_advertised(self) -> None:
        """Check that at least one broker can be reached at its advertised address.

        Raises:
            NoneAdvertised: none can, which is the most common mistake of a setup.
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
        raise NoneAdvertised(
            f"the broker at {self._address} sends clients to {', '.join(failures)}, where no broker"
            " answers: fix its advertised.listeners"
        )

    async def call(
        self, request: Message, response_type: type[M], *, version_max: int | None = None
    ) -> M:
        """Send a request and return the response.

        `version_max` limits the version, for requests whose later versions mean something else.

        Raises:
            Unreachable: the broker closes the connection, does not answer in time, or sends an
                invalid response. The connection can no longer be used.
            ClientFailed: the broker does not serve the API.
        """
        api = APIS[request.api_key]
        version = self._version_of(api.key, version_max)
        if version is None:
            raise ClientFailed(f"the broker at {self._address} does not support {api.name}")
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                self._send(request, version)
                return self._read(await self._frames.receive(), response_type, version)
        except (OSError, EOFError, TimeoutError, ProtocolError) as error:
            raise _no_answer(self._address, error) from error

    def _version_of(self, key: ApiKey, version_max: int | None = None) -> int | None:
        """Returns the highest version that both sides support, or None."""
        if key not in self._versions:
            return None
        low, high = self._versions[key]
        ours = APIS[key].version_max
        version = min(high, ours if version_max is None else version_max)
        return version if version >= max(low, APIS[key].served_min) else None

    def _send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        header = bytearray(
            _HEADER.pack(request.api_key, version, self._correlation_id, len(CLIENT_ID), CLIENT_ID)
        )
        if version >= request.flexible_since:
            header.append(0)
        payload = b"".join(map(_part_bytes, encode(request, version, header)))
        self._frames.send(_SIZE.pack(len(payload)) + payload)

    def _read(self, frame: memoryview, response_type: type[M], version: int) -> M:
        (correlation_id,) = _SIZE.unpack_from(frame)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"an answer to request {correlation_id}")
        position = _SIZE.size
        if version >= response_type.flexible_since and response_type.api_key != ApiKey.API_VERSIONS:
            position, _ = skip_tagged_fields(frame, position, _TAGGED_MAX)
        return decode(response_type, version, frame, position)


@asynccontextmanager
async def connected(bootstrap: str, access: Access) -> AsyncIterator[BrokerClient]:
    """Yields a client of the first broker in `host:port,...` that answers, logged in.

    Raises:
        ClientFailed: no broker answers, or it refuses the login.
    """
    client = await connect(bootstrap, access, BrokerClient)
    try:
        yield client
    finally:
        client.close()


async def connect(bootstrap: str, access: Access, kind: type[C]) -> C:
    """Returns a client of the first broker that answers, logged in. The caller closes it.

    Raises as `connected`.
    """
    client = kind(*await _connect(bootstrap, access))
    try:
        await client.learn_versions()
        if access.login is not None:
            await log_in(client, access)
    except BaseException:
        client.close()
        raise
    return client


async def _connect(bootstrap: str, access: Access) -> tuple[str, Frames]:
    failures = []
    for address in filter(None, map(str.strip, bootstrap.split(","))):
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                loop = asyncio.get_running_loop()
                _, frames = await loop.create_connection(Frames, host, port, ssl=access.tls)
                return address, frames
        except (OSError, TimeoutError) as error:
            failures.append(_no_answer(address, error))
    if not failures:
        raise BadAddress(f"{bootstrap or 'an empty text'} names no broker: write host:port")
    raise type(failures[0])("; ".join(map(str, failures)))


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of `host:port`, `[v6]:port` or a host alone. Raises BadAddress."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or not host or "/" in host:
        raise BadAddress(f"{text} is not host:port")
    return host.strip("[]"), int(port)


def _no_answer(address: str, error: BaseException) -> Unreachable:
    if isinstance(error, ProtocolError | EOFError):
        return NotABroker(
            f"the server at {address} is not a Kafka broker, or it closed the connection ({error})"
        )
    if isinstance(error, ssl.SSLError):
        return NoTls(f"no TLS connection to {address}: {_tls_reason(error)}")
    return Unreachable(f"no broker answers at {address} ({_reason(error)})")


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

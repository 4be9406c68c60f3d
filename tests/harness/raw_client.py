"""A client on a raw socket: it sends given bytes or requests, and receives frames in order.

Requests are encoded and responses decoded with the broker's own codec, which other tests compare with
independent ones; this client tests the broker's behaviour.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Self, TypeVar

from protocol.wire.api_keys import APIS, ApiKey
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.schema import Message

M = TypeVar("M", bound=Message)

TIMEOUT_S = 120.0


class RawClient:
    """One connection to a broker, as slow or as wrong as a test needs it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout_s: float | None = TIMEOUT_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        limit: int = 1 << 26,
        timeout_s: float | None = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Connect. `limit` bounds the read-ahead: a small one makes a slow reader. `timeout_s` is how
        long a response may take; None: for ever."""
        return cls(*await asyncio.open_connection(host, port, limit=limit, ssl=tls), timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self._writer.write(data)

    def send_frame(self, payload: bytes) -> None:
        """Send bytes with their size in front."""
        self._writer.write(struct.pack(">i", len(payload)) + payload)

    def send(self, request: Message, version: int) -> int:
        """Send a request without waiting. Returns its correlation id."""
        self._correlation_id += 1
        self.send_frame(encode_request(request, version, self._correlation_id))
        return self._correlation_id

    async def call(self, request: Message, version: int, response_type: type[M]) -> M:
        """Send a request and wait for its response."""
        correlation_id = self.send(request, version)
        return await self.receive(response_type, version, correlation_id)

    async def receive(self, response_type: type[M], version: int, correlation_id: int) -> M:
        """Returns the next response, which must be the one to `correlation_id`."""
        frame = await self.receive_frame()
        (received,) = struct.unpack_from(">i", frame)
        assert received == correlation_id, f"response to {received}, not to {correlation_id}"
        return decode_response(frame, response_type, version)

    async def receive_frame(self) -> bytes:
        """Returns the next frame's payload."""
        async with asyncio.timeout(self._timeout_s):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Returns whether the broker closes the connection without sending anything more."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def finish(self) -> None:
        """Stop sending; receiving continues."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Abort the connection without a clean close."""
        self._writer.transport.abort()


def encode_request(request: Message, version: int, correlation_id: int) -> bytes:
    """Returns a request's frame payload, with client id `raw`."""
    out = bytearray(struct.pack(">hhih3s", request.api_key, version, correlation_id, 3, b"raw"))
    if version >= request.flexible_since:
        out.append(0)
    return b"".join(bytes(part) for part in encode(request, version, out))  # type: ignore[arg-type]


def decode_response(frame: bytes, response_type: type[M], version: int) -> M:
    """Decode the message in a response's frame payload."""
    view, position = memoryview(frame), 4
    api = APIS[response_type.api_key]
    if version >= api.flexible_since and api.key != ApiKey.API_VERSIONS:
        assert view[position] == 0, "no tagged fields are expected in a response's header"
        position += 1
    return decode(response_type, version, view, position)

"""A client of raw sockets: sends the bytes or the request it is told to, takes frames as they come.

Requests are encoded and responses decoded with the broker's own codec, which is compared with
independent ones elsewhere; what is tested by it is what the broker does.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Self, TypeVar

from protocol.api_keys import APIS, ApiKey
from protocol.decode import decode
from protocol.encode import encode
from protocol.schema import Message

M = TypeVar("M", bound=Message)

TIMEOUT_S = 10.0


class RawClient:
    """One connection to a broker, as slow or as wrong as a test wants it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, host: str, port: int, *, limit: int = 1 << 26) -> Self:
        """`limit` bounds what is read ahead of the test: small makes a slow reader."""
        return cls(*await asyncio.open_connection(host, port, limit=limit))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def send_frame(self, payload: bytes) -> None:
        """Send bytes with their size in front."""
        self._writer.write(struct.pack(">i", len(payload)) + payload)

    def send(self, request: Message, version: int) -> int:
        """Send a request without waiting; its correlation id."""
        self._correlation_id += 1
        self.send_frame(encode_request(request, version, self._correlation_id))
        return self._correlation_id

    async def call(self, request: Message, version: int, response_type: type[M]) -> M:
        """Send a request and wait for its response."""
        correlation_id = self.send(request, version)
        return await self.receive(response_type, version, correlation_id)

    async def receive(self, response_type: type[M], version: int, correlation_id: int) -> M:
        """The next response, which must be the one to `correlation_id`."""
        frame = await self.receive_frame()
        (received,) = struct.unpack_from(">i", frame)
        assert received == correlation_id, f"response to {received}, not to {correlation_id}"
        return decode_response(frame, response_type, version)

    async def receive_frame(self) -> bytes:
        """The next frame's payload."""
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection without sending anything more."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def finish(self) -> None:
        """Send no more; still receive."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Break the connection without a goodbye."""
        self._writer.transport.abort()


def encode_request(request: Message, version: int, correlation_id: int) -> bytes:
    """A request's frame payload, with client id `raw`."""
    out = bytearray(struct.pack(">hhih3s", request.api_key, version, correlation_id, 3, b"raw"))
    if version >= request.flexible_since:
        out.append(0)
    return b"".join(bytes(part) for part in encode(request, version, out))  # type: ignore[arg-type]


def decode_response(frame: bytes, response_type: type[M], version: int) -> M:
    """The message in a response's frame payload."""
    view, position = memoryview(frame), 4
    api = APIS[response_type.api_key]
    if version >= api.flexible_since and api.key != ApiKey.API_VERSIONS:
        assert view[position] == 0, "no tagged fields are expected in a response's header"
        position += 1
    return decode(response_type, version, view, position)

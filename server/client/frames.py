"""Receives the frames of a connection, each straight into a buffer of its size.

    | size: int32 | payload |

Answers of many megabytes would be copied three times by a stream of asyncio.
"""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from cleaner.rules.text import count_text
from protocol.wire.errors import ProtocolError

FRAME_BYTES_MAX = 1 << 30
_SIZE = struct.Struct(">i")


class Frames(asyncio.BufferedProtocol):
    """The frames of one connection; the client waits for one at a time."""

    def __init__(self) -> None:
        # State: `_view` is what is being filled: the size, or the payload once that is known.
        self._size = bytearray(_SIZE.size)
        self._view = memoryview(self._size)
        self._filled = 0
        self._is_payload = False
        self._received: list[memoryview] = []
        self._waiter: asyncio.Future[None] | None = None
        self._end: Exception | None = None
        self._transport: asyncio.Transport | None = None

    # ---------------------------------------------------------------- for the client

    def send(self, frame: bytes) -> None:
        """Send bytes. One request at a time waits for its answer, so no more than that is buffered.

        Raises:
            EOFError, OSError: the connection has ended.
        """
        assert self._transport is not None
        # uvloop's transports raise RuntimeError if they are closed.
        if self._end is not None or self._transport.is_closing():
            raise self._end or ConnectionResetError("the connection is closed")
        self._transport.write(frame)

    async def receive(self) -> memoryview:
        """Returns the payload of the next frame; it is the caller's.

        Raises:
            EOFError, OSError: the connection has ended.
            ProtocolError: the peer sent a size that no frame has.
        """
        while not self._received:
            if self._end is not None:
                raise self._end
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._received.pop()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    # ---------------------------------------------------------------- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # Not checked: the transports of uvloop are no subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the rest of what is being filled."""
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Note received bytes."""
        if self._end is not None:
            return  # What comes after an invalid size has no meaning.
        self._filled += nbytes
        if self._filled < len(self._view):
            return
        if self._is_payload:
            self._received.append(self._view)
            self._expect(memoryview(self._size), is_payload=False)
            self._wake()
            return
        (size,) = _SIZE.unpack(self._size)
        if _SIZE.size <= size <= FRAME_BYTES_MAX:
            self._expect(memoryview(bytearray(size)), is_payload=True)
        else:
            self._ended(ProtocolError(f"a frame of {count_text(size, 'byte')}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the client that waits."""
        self._ended(exc or EOFError("the connection was closed"))

    def _expect(self, view: memoryview, *, is_payload: bool) -> None:
        self._view, self._filled, self._is_payload = view, 0, is_payload

    def _ended(self, error: Exception) -> None:
        self._end = self._end or error
        self._expect(memoryview(self._size), is_payload=False)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

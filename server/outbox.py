"""Everything that one connection still has to send, in order.

    parts:  | buffer | buffer | region of a segment file | buffer | ...
            `----- sendmsg ----'`------- sendfile -------'

The transport only reads. Output goes through a `dup` of its socket with `loop.add_writer`, because
uvloop has no `loop.sendfile`, and because two writers on one stream could not keep the order. The
duplicate shares the open socket, so a FIN leaves only when both are closed.

A region pins a segment; it is released as soon as its last byte was sent or the connection is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from storage.errors import StorageError

TURN_BYTES_MAX = 4 << 20
"""What one connection may send before the loop looks at the others."""

SENDFILE_BYTES_MAX = 1 << 20
"""What one sendfile call is asked for: it bounds the time spent on pages that are not in memory."""

IOVECS_MAX = 64


class Region(Protocol):
    """A range of bytes of an open file, kept readable until `release` is called."""

    @property
    def fileno(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    def release(self) -> None: ...


Part: TypeAlias = bytes | bytearray | memoryview | Region


class _RegionToSend:
    """A region and how much of it has gone."""

    __slots__ = ("region", "sent_bytes")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.sent_bytes = 0


class Outbox:
    """The send queue of one connection. Used from the loop's thread only."""

    __slots__ = (
        "_bytes_max",
        "_empty",
        "_is_closed",
        "_is_watched",
        "_loop",
        "_on_error",
        "_on_sent",
        "_queue",
        "_room",
        "_socket",
        "pending_bytes",
    )

    def __init__(
        self,
        transport_socket: int,
        *,
        loop: asyncio.AbstractEventLoop,
        bytes_max: int,
        on_sent: Callable[[int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """Duplicate the descriptor `transport_socket`; the duplicate is owned here.

        Args:
            bytes_max: `room` waits while this much or more is unsent.
            on_sent: told how many bytes each turn has sent.
            on_error: told once why sending failed; the outbox is closed by then.
        """
        # Constant after construction
        self._loop = loop
        self._socket = socket.socket(fileno=os.dup(transport_socket))
        self._socket.setblocking(False)
        self._bytes_max = bytes_max
        self._on_sent = on_sent
        self._on_error = on_error
        # State: watched for writability exactly while the queue is not empty.
        self._queue: deque[memoryview | _RegionToSend] = deque()
        self._is_watched = False
        self._is_closed = False
        self.pending_bytes = 0
        self._room: asyncio.Future[None] | None = None
        self._empty: asyncio.Future[None] | None = None

    def write(self, parts: Iterable[Part]) -> None:
        """Send the parts after all earlier ones; takes over the pins of regions.

        Buffers are not copied and must not change until they are sent.
        """
        for part in parts:
            if isinstance(part, (bytes, bytearray, memoryview)):
                self._put(memoryview(part), len(part))
            elif self._is_closed or not part.size:
                part.release()
            else:
                self._put(_RegionToSend(part), part.size)
        if not self._is_watched and not self._is_closed:
            self._send()

    def _put(self, item: memoryview | _RegionToSend, size: int) -> None:
        if size and not self._is_closed:
            self._queue.append(item)
            self.pending_bytes += size

    async def room(self) -> None:
        """Wait until less than `bytes_max` is unsent, or the outbox is closed."""
        if self.pending_bytes >= self._bytes_max and not self._is_closed:
            self._room = self._loop.create_future()
            await self._room

    async def drained(self) -> None:
        """Wait until everything is handed to the kernel, or the outbox is closed."""
        if self._queue and not self._is_closed:
            self._empty = self._loop.create_future()
            await self._empty

    def close(self) -> None:
        """Forget what is unsent, release its pins, close the descriptor. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watch(wanted=False)
        self._socket.close()
        for item in self._queue:
            if isinstance(item, _RegionToSend):
                item.region.release()
        self._queue.clear()
        self.pending_bytes = 0
        self._tell_waiters()

    def _send(self) -> None:
        """Send until the kernel takes no more, the queue is empty, or the turn is over."""
        before = self.pending_bytes
        failure: Exception | None = None
        try:
            while self._queue and before - self.pending_bytes < TURN_BYTES_MAX:
                head = self._queue[0]
                if isinstance(head, _RegionToSend):
                    self._send_region(head)
                else:
                    self._send_buffers()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, StorageError) as error:
            failure = error
        if before > self.pending_bytes:
            self._on_sent(before - self.pending_bytes)
        if failure is not None:
            self.close()
            self._on_error(failure)
            return
        self._watch(wanted=bool(self._queue))
        self._tell_waiters()

    def _send_buffers(self) -> None:
        """Hand the buffers at the head to the kernel in one call."""
        buffers: list[memoryview] = []
        for item in self._queue:
            if isinstance(item, _RegionToSend) or len(buffers) == IOVECS_MAX:
                break
            buffers.append(item)
        # What follows is sent at once: let the kernel put both into the same packets.
        more = socket.MSG_MORE if len(buffers) < len(self._queue) else 0
        sent = self._socket.sendmsg(buffers, (), more)
        self.pending_bytes -= sent
        for buffer in buffers:
            if sent < len(buffer):
                self._queue[0] = buffer[sent:]
                return
            sent -= len(buffer)
            self._queue.popleft()

    def _send_region(self, item: _RegionToSend) -> None:
        region = item.region
        rest = region.size - item.sent_bytes
        sent = os.sendfile(
            self._socket.fileno(),
            region.fileno,
            region.position + item.sent_bytes,
            min(rest, SENDFILE_BYTES_MAX),
        )
        if not sent:
            # The frame's size is already promised to the peer; only closing is honest.
            raise OSError(f"segment file ends {rest} bytes before the region that was promised")
        item.sent_bytes += sent
        self.pending_bytes -= sent
        if sent == rest:
            self._queue.popleft()
            region.release()

    def _watch(self, *, wanted: bool) -> None:
        if wanted == self._is_watched:
            return
        self._is_watched = wanted
        if wanted:
            self._loop.add_writer(self._socket.fileno(), self._send)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _tell_waiters(self) -> None:
        room, empty = self._room, self._empty
        if room is not None and self.pending_bytes < self._bytes_max:
            self._room = None
            if not room.done():
                room.set_result(None)
        if empty is not None and not self._queue:
            self._empty = None
            if not empty.done():
                empty.set_result(None)

"""The send queue of one connection: sends buffers and file regions in order.

    parts:  | buffer | buffer | region of a segment file | buffer | ...
            `----- sendmsg ----'`------- sendfile -------'

The transport only reads. The outbox sends on its socket directly, because uvloop has no
`loop.sendfile`, and because two writers on one stream could not keep the order. The loop refuses to
watch a transport's own descriptor for writability, so the outbox duplicates it, but only while output
waits for the peer: an idle connection has one descriptor. A closing transport closes its descriptor,
and the system may give the number to another connection, so the outbox no longer sends on it.

A region pins a segment; it is released as soon as its last byte is sent or the outbox is closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from cleaner.rules.text import count_text
from server.net.limits import AnswerMemory
from server.runtime.tasks import call_later
from storage.files.errors import StorageError

TURN_BYTES_MAX = 4 << 20
"""How much one connection may send before the loop serves the others."""

SENDFILE_BYTES_MAX = 1 << 20
"""Bound on one sendfile call, because the call blocks on pages that are not in memory."""

IOVECS_MAX = 64

RETRY_SECONDS = 0.02
"""Interval between attempts to send to a slow peer while no descriptor is left to watch it with."""


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


def buffered_size(parts: Iterable[Part]) -> int:
    """Returns how many bytes of an answer are in memory, that is, without its file regions."""
    return sum(len(part) for part in parts if isinstance(part, bytes | bytearray | memoryview))


class _RegionToSend:
    """A region and how many of its bytes are sent."""

    __slots__ = ("region", "sent_bytes")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.sent_bytes = 0


def _ignore(_: object) -> None:
    """Replaces the callbacks of a closed outbox."""


class Outbox:
    """The send queue of one connection. Used from the loop's thread only."""

    __slots__ = (
        "_bytes_max",
        "_drain_waiter",
        "_duplicate",
        "_is_closed",
        "_is_watched",
        "_loop",
        "_memory",
        "_on_error",
        "_on_sent",
        "_queue",
        "_retry",
        "_room_waiter",
        "_socket",
        "_transport",
        "pending_bytes",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        loop: asyncio.AbstractEventLoop,
        memory: AnswerMemory,
        bytes_max: int,
        on_sent: Callable[[int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """Create an outbox that sends on the socket of `transport`, which still owns the socket.

        Args:
            memory: gets back the bytes of buffers that are sent or dropped; the caller of `write`
                has counted them in.
            bytes_max: `room` waits while at least this many bytes are unsent.
            on_sent: called with the number of bytes sent in a turn.
            on_error: called once, after the outbox was closed, if sending failed.
        """
        # Constant after construction
        self._loop = loop
        self._transport = transport
        self._memory = memory
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self._socket.setblocking(False)
        self._bytes_max = bytes_max
        self._on_sent = on_sent
        self._on_error = on_error
        # State: while the queue is not empty, the loop watches the duplicate for writability, or, if
        # no descriptor is left for a duplicate, a timer retries.
        self._queue: deque[memoryview | _RegionToSend] = deque()
        self._is_watched = False
        self._duplicate: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.pending_bytes = 0
        self._room_waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None

    def write(self, parts: Iterable[Part]) -> None:
        """Send the parts after all earlier ones. The outbox takes over the pins of regions.

        Buffers are not copied and must not change until they are sent.
        """
        for part in parts:
            if isinstance(part, (bytes, bytearray, memoryview)):
                if self._is_closed:
                    self._memory.give_back(len(part))
                else:
                    self._put(memoryview(part), len(part))
            elif self._is_closed or not part.size:
                part.release()
            else:
                self._put(_RegionToSend(part), part.size)
        if not self._is_watched and not self._is_closed:
            self._send()

    def _put(self, item: memoryview | _RegionToSend, size: int) -> None:
        if size:
            self._queue.append(item)
            self.pending_bytes += size

    async def room(self) -> None:
        """Wait until less than `bytes_max` is unsent, or the outbox is closed."""
        if self.pending_bytes >= self._bytes_max and not self._is_closed:
            self._room_waiter = self._loop.create_future()
            await self._room_waiter

    async def drained(self) -> None:
        """Wait until the kernel has accepted everything, or the outbox is closed."""
        if self._queue and not self._is_closed:
            self._drain_waiter = self._loop.create_future()
            await self._drain_waiter

    def close(self) -> None:
        """Drop unsent output and release its pins. A second call changes nothing.

        Call it before the transport is closed, or from `connection_lost`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._watch(wanted=False)
        self._socket.detach()
        dropped = 0
        for item in self._queue:
            if isinstance(item, _RegionToSend):
                item.region.release()
            else:
                dropped += len(item)
        self._queue.clear()
        self.pending_bytes = 0
        # The callbacks refer to the connection, which refers to the outbox: break the cycle.
        self._on_sent = self._on_error = _ignore
        self._memory.give_back(dropped)
        self._wake_waiters()

    def _send(self) -> None:
        """Send until the kernel takes no more, the queue is empty, or the turn is over."""
        if self._transport.is_closing():
            # Its descriptor number may already be another connection's; `connection_lost` follows.
            return
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
            on_error = self._on_error
            self.close()
            on_error(failure)
            # The exception's traceback refers to this frame: break the cycle.
            del failure
            return
        self._watch(wanted=bool(self._queue))
        self._wake_waiters()

    def _send_buffers(self) -> None:
        """Send the buffers at the head of the queue in one call."""
        buffers: list[memoryview] = []
        for item in self._queue:
            if isinstance(item, _RegionToSend) or len(buffers) == IOVECS_MAX:
                break
            buffers.append(item)
        # More parts follow immediately: let the kernel put them into the same packets.
        more = socket.MSG_MORE if len(buffers) < len(self._queue) else 0
        sent = self._socket.sendmsg(buffers, (), more)
        self.pending_bytes -= sent
        self._memory.give_back(sent)
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
            # The peer already has the frame's size and waits for all of it, so the only way out is
            # to close the connection.
            raise OSError(f"segment file ends {count_text(rest, 'byte')} before the region to send")
        item.sent_bytes += sent
        self.pending_bytes -= sent
        if sent == rest:
            self._queue.popleft()
            region.release()

    def _watch(self, *, wanted: bool) -> None:
        """Start or stop watching whether the peer takes more output."""
        if wanted == self._is_watched:
            return
        self._is_watched = wanted
        if wanted:
            self._start_watching()
            return
        if self._duplicate is not None:
            self._loop.remove_writer(self._duplicate.fileno())
            self._duplicate.close()
            self._duplicate = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _start_watching(self) -> None:
        try:
            self._duplicate = self._socket.dup()
        except OSError:  # All descriptors are in use.
            self._retry = call_later(RETRY_SECONDS, "retried send", self._retry_send)
            return
        self._loop.add_writer(self._duplicate.fileno(), self._send)

    def _retry_send(self) -> None:
        self._watch(wanted=False)
        self._send()

    def _wake_waiters(self) -> None:
        room, drain = self._room_waiter, self._drain_waiter
        if room is not None and self.pending_bytes < self._bytes_max:
            self._room_waiter = None
            if not room.done():
                room.set_result(None)
        if drain is not None and not self._queue:
            self._drain_waiter = None
            if not drain.done():
                drain.set_result(None)

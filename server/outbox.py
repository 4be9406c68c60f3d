"""Everything that one connection still has to send, in order.

    parts:  | buffer | buffer | region of a segment file | buffer | ...
            `----- sendmsg ----'`------- sendfile -------'

The transport only reads. Output goes through its socket directly, because uvloop has no
`loop.sendfile`, and because two writers on one stream could not keep the order. The loop refuses a
writer on a transport's own descriptor, so a duplicate is made while output waits for the peer, and
only then: an idle connection has one descriptor. The transport closes its descriptor as soon as it
is closing, and the number may then be another connection's: nothing is sent on it from there on.

A region pins a segment; it is released as soon as its last byte was sent or the connection is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from cleaner.text import count_text
from server.limits import AnswerMemory
from server.tasks import call_later
from storage.errors import StorageError

TURN_BYTES_MAX = 4 << 20
"""What one connection may send before the loop looks at the others."""

SENDFILE_BYTES_MAX = 1 << 20
"""What one sendfile call is asked for: it bounds the time spent on pages that are not in memory."""

IOVECS_MAX = 64

RETRY_SECONDS = 0.02
"""How soon to try again to send to a slow peer when there is no descriptor to watch it by."""


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
    """The bytes of an answer that are in memory; its regions are in files."""
    return sum(len(part) for part in parts if isinstance(part, bytes | bytearray | memoryview))


class _RegionToSend:
    """A region and how much of it has gone."""

    __slots__ = ("region", "sent_bytes")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.sent_bytes = 0


def _ignore(_: object) -> None:
    """Nobody listens any more."""


class Outbox:
    """The send queue of one connection. Used from the loop's thread only."""

    __slots__ = (
        "_bytes_max",
        "_duplicate",
        "_empty",
        "_is_closed",
        "_is_watched",
        "_loop",
        "_memory",
        "_on_error",
        "_on_sent",
        "_queue",
        "_retry",
        "_room",
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
        """Send on the socket of `transport`, which keeps it.

        Args:
            memory: what is sent or dropped of buffers is given back there; the caller holds it.
            bytes_max: `room` waits while this much or more is unsent.
            on_sent: called with the bytes that a turn has sent.
            on_error: called once if sending failed; the outbox is closed by then.
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
        # State: watched for writability exactly while the queue is not empty, on the duplicate; or,
        # where there is no descriptor left for one, looked at again by a timer.
        self._queue: deque[memoryview | _RegionToSend] = deque()
        self._is_watched = False
        self._duplicate: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
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
            self._room = self._loop.create_future()
            await self._room

    async def drained(self) -> None:
        """Wait until everything is handed to the kernel, or the outbox is closed."""
        if self._queue and not self._is_closed:
            self._empty = self._loop.create_future()
            await self._empty

    def close(self) -> None:
        """Forget what is unsent and release its pins. To close twice changes nothing.

        Must be called before the transport is closed, or when it says that it was.
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
        # The connection holds the outbox, and these hold the connection.
        self._on_sent = self._on_error = _ignore
        self._memory.give_back(dropped)
        self._tell_waiters()

    def _send(self) -> None:
        """Send until the kernel takes no more, the queue is empty, or the turn is over."""
        if self._transport.is_closing():
            # Its descriptor may be another connection's by now; `connection_lost` will follow.
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
            # Its traceback holds this frame, and the frame must not hold it: that is a cycle.
            del failure
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
            # The frame's size is already promised to the peer; only closing is honest.
            raise OSError(
                f"segment file ends {count_text(rest, 'byte')} before the region that was promised"
            )
        item.sent_bytes += sent
        self.pending_bytes -= sent
        if sent == rest:
            self._queue.popleft()
            region.release()

    def _watch(self, *, wanted: bool) -> None:
        """Send on when the peer has taken something, or stop to watch for that."""
        if wanted == self._is_watched:
            return
        self._is_watched = wanted
        if wanted:
            self._begin_to_watch()
            return
        if self._duplicate is not None:
            self._loop.remove_writer(self._duplicate.fileno())
            self._duplicate.close()
            self._duplicate = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _begin_to_watch(self) -> None:
        try:
            self._duplicate = self._socket.dup()
        except OSError:  # All descriptors are in use.
            self._retry = call_later(RETRY_SECONDS, "retried send", self._send_again)
            return
        self._loop.add_writer(self._duplicate.fileno(), self._send)

    def _send_again(self) -> None:
        self._watch(wanted=False)
        self._send()

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

"""The queue of what a connection has to send: buffers and file regions, in order.

    parts:  | buffer | buffer | region of a segment file | buffer | ...

`Outbox` (outbox.py) sends it on a socket, `TlsOutbox` (tls_outbox.py) through the TLS transport. A
region pins a segment; it is released as soon as its last byte is sent or the queue is closed.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from server.net.limits import AnswerMemory
from storage.threads import loop_thread


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

COPIED_BYTES_MAX = 128 << 10
"""Up to this much of a region is copied into an answer instead. A copy costs less than the system call
for a region, and an answer from hundreds of partitions then does not hold hundreds of descriptors until
it is sent. Copies count as memory for answers; while that is short, nothing is copied."""


def buffered_size(parts: Iterable[Part]) -> int:
    """Returns how many bytes of an answer are in memory, that is, without its file regions."""
    size = 0
    for part in parts:
        if isinstance(part, (bytes, bytearray, memoryview)):
            size += len(part)
    return size


class RegionToSend:
    """A region and how many of its bytes are sent."""

    __slots__ = ("region", "sent_bytes")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.sent_bytes = 0


def _ignore(_: object) -> None:
    """Replaces the callbacks of a closed outbox."""


@loop_thread
class SendQueue:
    """What a connection has to send. A subclass sends it."""

    __slots__ = (
        "_bytes_max",
        "_drain_waiter",
        "_is_closed",
        "_loop",
        "_memory",
        "_on_error",
        "_on_sent",
        "_queue",
        "_room_waiter",
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
        """Create an empty queue for a connection whose transport is `transport`.

        Args:
            memory: gets back the bytes of buffers that are sent or dropped; the caller of `write`
                has counted them in.
            bytes_max: `room` waits while at least this many bytes are unsent.
            on_sent: called with the number of bytes sent in a turn.
            on_error: called once, after the queue was closed, if sending failed.
        """
        # Constant after construction
        self._loop = loop
        self._transport = transport
        self._memory = memory
        self._bytes_max = bytes_max
        self._on_sent = on_sent
        self._on_error = on_error
        # State
        self._queue: deque[memoryview | RegionToSend] = deque()
        self._is_closed = False
        self.pending_bytes = 0
        self._room_waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None

    def write(self, parts: Sequence[Part], *, is_late: bool = False) -> None:
        """Send the parts after all earlier ones. The queue takes over the pins of regions.

        Buffers are not copied and must not change until they are sent.

        Args:
            is_late: they are sent after the requests of this turn of the loop, for example because
                they waited for the disk.
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
                self._put(RegionToSend(part), part.size)
        if not self._is_closed:
            self._send_if_ready()
        self._check_pending_bytes_are_queued()

    def _check_pending_bytes_are_queued(self) -> None:
        assert (self.pending_bytes > 0) == bool(self._queue or self._unconfirmed_bytes())
        assert self.pending_bytes >= 0
        assert not (self._is_closed and self._queue)

    def _put(self, item: memoryview | RegionToSend, size: int) -> None:
        if size:
            self._queue.append(item)
            self.pending_bytes += size

    async def room(self) -> None:
        """Wait until less than `bytes_max` is unsent, or the queue is closed."""
        if self.pending_bytes >= self._bytes_max and not self._is_closed:
            self._room_waiter = self._loop.create_future()
            await self._room_waiter

    async def drained(self) -> None:
        """Wait until the kernel or the transport has accepted everything, or the queue is closed."""
        if self.pending_bytes and not self._is_closed:
            self._drain_waiter = self._loop.create_future()
            await self._drain_waiter

    def close(self) -> None:
        """Drop unsent output and release its pins. A second call changes nothing.

        Call it before the transport is closed, or from `connection_lost`.
        """
        if self._is_closed:
            return
        self._is_closed = True
        dropped = self._stop_sending()
        for item in self._queue:
            if isinstance(item, RegionToSend):
                self._release(item)
            else:
                dropped += len(item)
        self._queue.clear()
        self.pending_bytes = 0
        # The callbacks refer to the connection, which refers to the outbox: break the cycle.
        self._on_sent = self._on_error = _ignore
        self._memory.give_back(dropped)
        self._wake_waiters()

    def _fail(self, failure: Exception) -> None:
        """Close the queue, and report why sending failed."""
        on_error = self._on_error
        self.close()
        on_error(failure)

    def _wake_waiters(self) -> None:
        room, drain = self._room_waiter, self._drain_waiter
        if room is not None and self.pending_bytes < self._bytes_max:
            self._room_waiter = None
            if not room.done():
                room.set_result(None)
        if drain is not None and not self.pending_bytes:
            self._drain_waiter = None
            if not drain.done():
                drain.set_result(None)

    # What a subclass does.

    @abstractmethod
    def _send_if_ready(self) -> None:
        """Send, unless it already waits for the peer."""

    @abstractmethod
    def _stop_sending(self) -> int:
        """Stop, because the queue closes. Returns the counted bytes of buffers outside the queue."""

    def _unconfirmed_bytes(self) -> int:
        """Returns the pending bytes that are no longer in the queue."""
        return 0

    def _release(self, item: RegionToSend) -> None:
        """Release the pin of a region that will not be sent."""
        item.region.release()

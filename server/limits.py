"""How much peers may take of the broker: connections, and memory for requests and answers.

Counts without I/O; `server/connection.py` and `server/dispatch.py` ask them and act. Each bound on
memory lets one peer exceed it at a time, so that whatever is legal is served.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol


class ConnectionLimits:
    """Who is connected, over all listeners (`max.connections`, `max.connections.per.ip`)."""

    __slots__ = ("_by_ip", "_connections_max", "_per_ip_max", "count")

    def __init__(self, *, connections_max: int, connections_per_ip_max: int) -> None:
        self._connections_max = connections_max
        self._per_ip_max = connections_per_ip_max
        # State: count is the sum of _by_ip, which holds no zeros.
        self._by_ip: Counter[str] = Counter()
        self.count = 0

    def configure(self, *, connections_max: int, connections_per_ip_max: int) -> None:
        """Go by other limits; who is connected stays."""
        self._connections_max = connections_max
        self._per_ip_max = connections_per_ip_max

    def admit(self, ip: str) -> str | None:
        """Count a connection in; or say which limit refuses it, and count nothing."""
        if self.count >= self._connections_max:
            return f"max.connections={self._connections_max} is reached"
        if self._by_ip[ip] >= self._per_ip_max:
            return f"max.connections.per.ip={self._per_ip_max} is reached for {ip}"
        self._by_ip[ip] += 1
        self.count += 1
        return None

    def leave(self, ip: str) -> None:
        """Count out a connection that was admitted."""
        self.count -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]


class Reader(Protocol):
    """A connection, as the bound on request memory knows it."""

    def resume_reading(self) -> None:
        """There is room, or it is this connection's turn to read without it."""


class RequestMemory:
    """Bytes of requests over all connections: on their way, queued or carried out
    (`queued.max.request.bytes`).

    Beyond the bound, connections that hold more than a little stop reading after what they receive
    next, and wait in a queue.
    The first of the queue may read on without room, alone, until its request is answered: so a
    request larger than what is left is served, and nobody waits for ever.
    """

    __slots__ = ("_bytes_max", "_exempt", "_waiting", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        """`bytes_max` below 0 sets no bound (Kafka's default)."""
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: dict[Reader, None] = {}
        self._exempt: Reader | None = None

    def hold(self, size: int) -> None:
        """Count bytes in."""
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """Count bytes out, and let those read on for whom there is room now."""
        self.held_bytes -= size
        self._advance()

    def may_read(self, reader: Reader) -> bool:
        """Whether this connection may take more bytes of requests into memory."""
        has_room = self._bytes_max < 0 or self.held_bytes < self._bytes_max
        return has_room or self._exempt is reader

    def wait(self, reader: Reader) -> None:
        """Let this connection read on when its turn comes; to wait twice changes nothing."""
        self._waiting[reader] = None
        self._advance()

    def forget(self, reader: Reader) -> None:
        """This connection needs no room any more: it has none of its requests in memory."""
        self._waiting.pop(reader, None)
        if self._exempt is reader:
            self._exempt = None
            self._advance()

    @property
    def is_short(self) -> bool:
        """Whether connections wait for room."""
        return bool(self._waiting)

    @property
    def exempt(self) -> Reader | None:
        """The connection that reads without room."""
        return self._exempt

    def _advance(self) -> None:
        while self._waiting:
            first = next(iter(self._waiting))
            if not self.may_read(first):
                if self._exempt is not None:
                    return
                self._exempt = first
            del self._waiting[first]
            first.resume_reading()


class AnswerMemory:
    """Bytes of encoded answers over all connections that are not sent yet
    (`queued.max.response.bytes`). Regions of files do not count.

    An answer grows as it is encoded. Beyond the bound its encoding waits, but for one answer at a
    time, which may exceed the bound alone: so the largest answer is made, and nobody waits for ever.
    """

    __slots__ = ("_bytes_max", "_exceeding", "_waiting", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: deque[tuple[object, asyncio.Future[None]]] = deque()
        self._exceeding: object = None

    @property
    def has_room(self) -> bool:
        """Whether less is held than the bound."""
        return self.held_bytes < self._bytes_max

    @property
    def is_short(self) -> bool:
        """Whether an answer waits for room."""
        return bool(self._waiting)

    def hold(self, size: int) -> None:
        """Count bytes of an answer in that is ready."""
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """Count bytes out that were sent or dropped."""
        self.held_bytes -= size
        self._advance()

    async def grow(self, answer: object, size: int) -> None:
        """Count in bytes by which an answer has grown; return when it may grow further."""
        self.held_bytes += size
        if self._may_grow(answer):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, turn))
        await turn

    def complete(self, answer: object, size: int) -> None:
        """Count out what an answer has grown to: `hold` counts what is to be sent of it."""
        if self._exceeding is answer:
            self._exceeding = None
        self.give_back(size)

    def _may_grow(self, answer: object) -> bool:
        if self.has_room or self._exceeding is answer:
            return True
        if self._exceeding is None:
            self._exceeding = answer
            return True
        return False

    def _advance(self) -> None:
        while self._waiting:
            answer, turn = self._waiting[0]
            if not turn.done() and not self._may_grow(answer):
                return
            self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


class DecodedMemory:
    """What large requests take once they are decoded, over all connections, by estimate.

    A request waits until there is room, in the order of arrival. One above the bound runs alone.
    """

    __slots__ = ("_bytes_max", "_waiting", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes for the time of the `with` block."""
        await self._acquire(size)
        try:
            yield
        finally:
            self._release(size)

    async def _acquire(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self.held_bytes += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(size)
            raise

    def _release(self, size: int) -> None:
        self.held_bytes -= size
        self._advance()

    def _fits(self, size: int) -> bool:
        return not self.held_bytes or self.held_bytes + size <= self._bytes_max

    def _advance(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += size
                turn.set_result(None)

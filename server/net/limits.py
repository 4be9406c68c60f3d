"""Limits how many connections clients may open, and how much memory their requests and answers take.

These classes only count; `server/net/connection.py` and `server/dispatch.py` ask them and act. Each
bound on memory lets one peer at a time exceed it, so that every legal request is served.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from storage.threads import loop_thread

T = TypeVar("T")


@loop_thread
class ConnectionLimits:
    """Counts connections: over all listeners (`max.connections`), by address
    (`max.connections.per.ip`, with overrides), by listener (`listener.name.<name>.max.connections`)."""

    __slots__ = (
        "_by_ip", "_by_listener", "_connections_max", "_ip_overrides", "_listeners_max",
        "_per_ip_max", "count",
    )  # fmt: skip

    def __init__(self, *, connections_max: int, connections_per_ip_max: int) -> None:
        # State: count is the sum of _by_ip, and of _by_listener; neither holds zeros.
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self.count = 0
        self._ip_overrides: Mapping[str, int] = {}
        self._listeners_max: Mapping[str, int] = {}
        self.configure(
            connections_max=connections_max, connections_per_ip_max=connections_per_ip_max
        )

    def configure(
        self,
        *,
        connections_max: int,
        connections_per_ip_max: int,
        by_ip: Mapping[str, int] | None = None,
        by_listener: Mapping[str, int] | None = None,
    ) -> None:
        """Change the limits. Connections that are open already stay open.

        Args:
            by_ip: the limits of single addresses, in place of `connections_per_ip_max`.
            by_listener: the limits of single listeners.
        """
        self._connections_max = connections_max
        self._per_ip_max = connections_per_ip_max
        self._ip_overrides = by_ip or {}
        self._listeners_max = by_listener or {}

    def admit(self, ip: str, listener: str) -> str | None:
        """Count a new connection. Returns None, or why a limit refuses it (it is then not counted)."""
        if self.count >= self._connections_max:
            return f"max.connections={self._connections_max} is reached"
        listener_max = self._listeners_max.get(listener)
        if listener_max is not None and self._by_listener[listener] >= listener_max:
            name = f"listener.name.{listener.lower()}.max.connections"
            return f"{name}={listener_max} is reached"
        ip_max = self._ip_overrides.get(ip, self._per_ip_max)
        if self._by_ip[ip] >= ip_max:
            return f"max.connections.per.ip={ip_max} is reached for {ip}"
        self._by_ip[ip] += 1
        self._by_listener[listener] += 1
        self.count += 1
        self._check_total_covers(ip, listener)
        return None

    def leave(self, ip: str, listener: str) -> None:
        """Stop counting a connection that was admitted."""
        self.count -= 1
        self._by_ip[ip] -= 1
        self._by_listener[listener] -= 1
        self._check_total_covers(ip, listener)
        if not self._by_ip[ip]:
            del self._by_ip[ip]
        if not self._by_listener[listener]:
            del self._by_listener[listener]

    def _check_total_covers(self, ip: str, listener: str) -> None:
        assert 0 <= self._by_ip[ip] <= self.count
        assert 0 <= self._by_listener[listener] <= self.count


class Reader(Protocol):
    """A connection that waits for request memory."""

    def resume_reading(self) -> None:
        """Called when there is room, or when this connection may read beyond the bound."""


@loop_thread
class RequestMemory:
    """Counts the bytes of requests over all connections: partly received, queued or running
    (`queued.max.request.bytes`).

    At the bound, a connection that holds more than a little (`SMALL_HELD_BYTES`) stops reading after
    the bytes that it receives next, and waits in a queue. The first in the queue may read beyond the
    bound, alone, until its request is answered: so a request that is larger than the room left is
    served, and no connection waits for ever.
    """

    __slots__ = ("_bytes_max", "_exempt", "_waiting", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        """`bytes_max` below 0 sets no bound (Kafka's default)."""
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: dict[Reader, None] = {}
        self._exempt: Reader | None = None

    def hold(self, size: int) -> None:
        """Count `size` more bytes as held."""
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """Count `size` fewer bytes as held, and resume the connections that now have room."""
        self.held_bytes -= size
        self._check_held_bytes_are_owned()
        self._advance()

    def may_read(self, reader: Reader) -> bool:
        """Returns whether this connection may read more bytes of requests into memory."""
        has_room = self._bytes_max < 0 or self.held_bytes < self._bytes_max
        return has_room or self._exempt is reader

    def wait(self, reader: Reader) -> None:
        """Queue this connection until it may read; no effect if it is queued already."""
        self._waiting[reader] = None
        self._advance()

    def forget(self, reader: Reader) -> None:
        """Remove this connection from the queue: it holds no requests in memory."""
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
        """The connection that may read beyond the bound, if any."""
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

    def _check_held_bytes_are_owned(self) -> None:
        assert self.held_bytes >= 0, "a connection gives back what it holds"


class _Waiters(Generic[T]):
    """Coroutines that wait for room, in the order of arrival, each with what it asks for."""

    __slots__ = ("_admit", "_release", "_waiting")

    def __init__(
        self, *, admit: Callable[[T], bool], release: Callable[[T], None] = lambda _: None
    ) -> None:
        """
        Args:
            admit: takes what a coroutine asks for. Counts it and returns True if there is room.
            release: undoes `admit` for a coroutine that is cancelled before it runs again.
        """
        self._admit = admit
        self._release = release
        self._waiting: deque[tuple[T, asyncio.Future[None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, asked: T) -> None:
        """Return once `asked` is admitted."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release(asked)
            # Smaller ones may have waited behind this one.
            self.advance()
            raise

    def advance(self) -> None:
        """Admit from the head of the queue until there is no room. Call it when there is more room."""
        while self._waiting:
            asked, turn = self._waiting[0]
            if not turn.done() and not self._admit(asked):
                return
            self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


@loop_thread
class AnswerMemory:
    """Counts the bytes of encoded, unsent answers over all connections
    (`queued.max.response.bytes`). File regions do not count.

    An answer grows as it is encoded. At the bound, encoding waits, except that one answer at a time
    may exceed the bound: so even the largest answer is encoded, and none waits for ever.
    """

    __slots__ = ("_bytes_max", "_exempt", "_waiters", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiters = _Waiters(admit=self._may_grow)
        self._exempt: object = None

    @property
    def has_room(self) -> bool:
        """Whether less is held than the bound."""
        return self.held_bytes < self._bytes_max

    @property
    def is_short(self) -> bool:
        """Whether an answer waits for room."""
        return bool(self._waiters)

    def hold(self, size: int) -> None:
        """Count the bytes of a complete answer."""
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        """Stop counting bytes that were sent or dropped."""
        self.held_bytes -= size
        self._check_held_bytes_are_owned()
        self._waiters.advance()

    async def grow(self, answer: object, size: int) -> None:
        """Count the bytes by which an answer has grown; return when it may grow further."""
        self.held_bytes += size
        if not self._may_grow(answer):
            await self._waiters.wait(answer)

    def complete(self, answer: object, size: int) -> None:
        """Stop counting the growth of an answer; `hold` then counts the part that is to be sent."""
        if self._exempt is answer:
            self._exempt = None
        self.give_back(size)

    def _may_grow(self, answer: object) -> bool:
        if self.has_room or self._exempt is answer:
            return True
        if self._exempt is None:
            self._exempt = answer
            return True
        return False

    def _check_held_bytes_are_owned(self) -> None:
        assert self.held_bytes >= 0, "only bytes that were held are given back"


@loop_thread
class DecodedMemory:
    """Bounds the estimated memory of decoded large requests over all connections.

    Requests wait for room in the order of arrival. One that is larger than the bound runs alone.
    """

    __slots__ = ("_bytes_max", "_waiters", "held_bytes")

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiters = _Waiters(admit=self._hold_if_it_fits, release=self._release)

    @asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """Wait for room, then hold `size` bytes until the `with` block ends."""
        if self._waiters or not self._hold_if_it_fits(size):
            await self._waiters.wait(size)
        try:
            yield
        finally:
            self._release(size)

    def _hold_if_it_fits(self, size: int) -> bool:
        fits = not self.held_bytes or self.held_bytes + size <= self._bytes_max
        if fits:
            self.held_bytes += size
        return fits

    def _release(self, size: int) -> None:
        self.held_bytes -= size
        assert self.held_bytes >= 0, "only bytes that were held are given back"
        self._waiters.advance()

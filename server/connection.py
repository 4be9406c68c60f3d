"""One client's connection: bytes in, requests one at a time, responses in order.

    socket --> FrameBuffer --> requests --> dispatch --> replies --> Outbox --> socket
                               (queue)     one at a time  (in order)

Requests start in the order they came, each when its predecessor has done all that the order of
effects needs. Most are answered by then. A Produce is done once it appended, and its reply, which
waits for the disk, comes later: `dispatch` hands over an awaitable of it. Replies leave strictly in
the order of their requests.

What a peer can hold of us is bounded: the size of a frame, requests in flight, bytes of all
requests, unsent output. Beyond a bound we stop reading; a frame that is too large closes the
connection. Requests that wait in a queue share the loop with those of other connections by slices
(`server/turns.py`).

A connection that breaks does not undo what it asked for: complete requests that were already
received are carried out (an `acks=0` producer may send and close), and only their replies are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from metrics.server_probe import ServerProbe
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.frame import FrameBuffer
from server.addresses import Address
from server.limits import AnswerMemory, ConnectionLimits, RequestMemory
from server.outbox import Outbox, Part, buffered_size
from server.sparing_log import SparingLog
from server.turns import Pace, Turns

if TYPE_CHECKING:
    from server.fetch_waiters import ParkedFetch

_log = logging.getLogger("server.connection")

IN_FLIGHT_REQUESTS_MAX = 64
"""Requests of one connection that are received and unanswered; clients use up to 5, some 12."""

OUTBOX_BYTES_MAX = 1 << 20
"""While so much of earlier replies is unsent, the next request of the connection waits."""

LITTLE_BYTES = 16 << 10
"""A connection whose requests take no more in memory is read from even where memory is short: those
with small requests do not wait for those with large ones."""

LARGE_FRAME_BYTES = 64 << 10
"""A request of more bytes has so many elements that its decoded form is what counts."""

DECODED_FACTOR = 24
"""What a byte of such a request takes decoded and answered: 3 to 20 bytes become an element of 100
to 300, and its answer another one."""

Reply = list[Part] | Awaitable[list[Part] | None] | None
"""What dispatch gives: the response's parts, an awaitable of them, or None for no response."""


class Dispatch(Protocol):
    """Carries out one request. `server/dispatch.py` is the real one."""

    async def __call__(self, frame: bytearray, connection: Connection) -> Reply:
        """Raise ProtocolError to close the connection without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the connections of a broker share."""

    dispatch: Dispatch
    limits: ConnectionLimits
    memory: RequestMemory
    answers: AnswerMemory
    turns: Turns
    probe: ServerProbe
    warnings: SparingLog
    connections: set[Connection]
    frame_bytes_max: int
    in_flight_requests_max: int = IN_FLIGHT_REQUESTS_MAX
    outbox_bytes_max: int = OUTBOX_BYTES_MAX


class CloseConnection(Exception):
    """Raised by a handler that can only answer by closing: an `acks=0` produce that failed."""


def api_key_of(frame: bytearray) -> int:
    """The API that a frame asks for; nothing says that it is served."""
    return int.from_bytes(frame[:2], "big")


def memory_of(frame: bytearray) -> int:
    """What a request takes of memory as long as it is not answered. A Fetch may wait for records,
    with all the partitions that it names."""
    size = len(frame)
    if size > LARGE_FRAME_BYTES and api_key_of(frame) == ApiKey.FETCH:
        return size * DECODED_FACTOR
    return size


class _Answer:
    """The place of one request's reply in the order of replies."""

    __slots__ = ("is_ready", "parts", "request_bytes")

    def __init__(self, request_bytes: int) -> None:
        self.request_bytes = request_bytes
        self.is_ready = False
        self.parts: list[Part] | None = None

    def ready(self, parts: list[Part] | None) -> None:
        """Take the reply; None if there is none to send."""
        self.parts = parts
        self.is_ready = True


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection; lives on the loop's thread."""

    def __init__(self, shared: Shared, endpoint: Address) -> None:
        # Constant after construction
        self._shared = shared
        self.endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        # Known once connected
        self.client_host = ""
        self.client_port = 0
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._pace = Pace(shared.turns)
        # State of reading: held are the bytes of requests that the bound on memory counts, which
        # are buffered or in flight.
        self._frames = FrameBuffer(frame_bytes_max=shared.frame_bytes_max)
        self._requests: deque[bytearray] = deque()
        self._is_reading = True
        self._held_bytes = 0
        self._in_flight_bytes = 0
        # State of answering: in flight = waiting + running + answered out of turn
        self._answers: deque[_Answer] = deque()
        self._in_flight = 0
        self._is_sending_soon = False
        self._arrival: asyncio.Future[None] | None = None
        self._parked: ParkedFetch | None = None
        self._server: asyncio.Task[None] | None = None
        self._later: set[asyncio.Task[None]] = set()
        self.is_lost = False
        """Nobody will read a reply any more."""
        self._is_stopping = False
        self.last_active_s = self._loop.time()
        """When bytes last moved, in either direction, on the loop's clock."""

    def __str__(self) -> str:
        return f"{self.client_host}:{self.client_port} ({self.endpoint.name})"

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.client_host, self.client_port = str(peer[0]), int(peer[1])
        refusal = self._shared.limits.admit(self.client_host)
        if refusal is not None:
            self._shared.warnings.say(self, f"connection refused, {refusal}")
            self._shared.probe.connection_refused(self.endpoint.name)
            self.is_lost = True
            self._abort()
            return
        self._outbox = Outbox(
            self._transport,
            loop=self._loop,
            memory=self._shared.answers,
            bytes_max=self._shared.outbox_bytes_max,
            on_sent=self._on_sent,
            on_error=self._on_send_error,
        )
        self._shared.connections.add(self)
        self._shared.probe.connection_opened(self.endpoint.name)
        self._server = self._loop.create_task(self._serve(self._outbox))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._shared.probe.bytes_received(nbytes)
        self.last_active_s = self._loop.time()
        try:
            self._frames.buffer_updated(nbytes)
            while (frame := self._frames.next_frame()) is not None:
                self._take(frame)
        except ProtocolError as error:
            self.refuse(error)
        self._count_memory()
        if not self._may_read():
            self._pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._outbox is None:
            return
        self.is_lost = True
        self._outbox.close()
        self._frames.drop()
        self._count_memory()
        self._shared.memory.forget(self)
        self._shared.connections.discard(self)
        self._shared.limits.leave(self.client_host)
        self._shared.probe.connection_closed(self.endpoint.name)
        self._wake()

    # Called by the listener and by handlers.

    def close(self, reason: str) -> None:
        """Close now: what is unsent is dropped."""
        if not self.is_lost:
            _log.info("%s: closed, %s", self, reason)
            self._abort()

    def refuse(self, error: ProtocolError) -> None:
        """Close because the peer broke the protocol; nobody else notices."""
        if not self.is_lost:
            self._shared.warnings.say(self, f"closed, {type(error).__name__}", f": {error}")
            self._shared.probe.protocol_error(self.endpoint.name)
            self._abort()

    async def stop(self) -> None:
        """Answer what was received, send it, then close."""
        self._is_stopping = True
        self._pause_reading()
        self._wake()
        if self._server is not None:
            await asyncio.wait([self._server])

    def park(self, fetch: ParkedFetch | None) -> None:
        """Name the fetch that is to be ended early if the connection breaks or stops."""
        self._parked = fetch
        if fetch is not None and (self.is_lost or self._is_stopping):
            fetch.cancel()

    def is_idle_since(self, time_s: float) -> bool:
        """Whether nothing moved since `time_s` and it is the client we wait for, not ourselves."""
        if self.last_active_s > time_s or self._outbox is None:
            return False
        return self._in_flight == 0 or self._outbox.pending_bytes > 0

    def is_stalled_since(self, time_s: float) -> bool:
        """Whether it holds memory for a peer that has moved nothing since `time_s`."""
        if self.last_active_s > time_s or self._outbox is None:
            return False
        is_awaited = self._is_reading and self._frames.buffered_bytes > 0
        return is_awaited or self._outbox.pending_bytes > 0

    @property
    def is_ending(self) -> bool:
        """Whether waiting for more data makes no sense any more."""
        return self.is_lost or self._is_stopping

    # Requests.

    def _take(self, frame: bytearray) -> None:
        """Queue a complete request."""
        self._requests.append(frame)
        self._in_flight += 1
        self._in_flight_bytes += memory_of(frame)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def _serve(self, outbox: Outbox) -> None:
        """Carry out requests until the connection ends, then see its replies off."""
        while await self._has_request():
            frame = self._requests.popleft()
            answer = _Answer(memory_of(frame))
            self._answers.append(answer)
            await self._carry_out(frame, answer)
            del frame
            await outbox.room()
            if outbox.pending_bytes and not self._shared.answers.has_room:
                await outbox.drained()
            if self._pace.is_over:
                await self._pace.rest()
        if self._later:
            await asyncio.wait(self._later)
        await outbox.drained()
        if self._transport is not None and not self.is_lost:
            outbox.close()
            self._transport.close()
        # What refers back here: without it, memory is free at once, not at the next collection.
        self._server = self._transport = None

    async def _has_request(self) -> bool:
        """Wait for a request; False when none will come any more."""
        while not self._requests:
            if self.is_ending:
                return False
            self._arrival = self._loop.create_future()
            await self._arrival
            self._arrival = None
            self._pace.begin()
        return True

    async def _carry_out(self, frame: bytearray, answer: _Answer) -> None:
        """Run one request up to where the next may start."""
        try:
            reply = await self._shared.dispatch(frame, self)
        except ProtocolError as error:
            self.refuse(error)
            reply = None
        except CloseConnection as request:
            self.close(str(request))
            reply = None
        except Exception:  # noqa: BLE001 - one connection's trouble must not be another's
            # dispatch answers what a handler throws; this is a mistake of dispatch itself.
            _log.exception("%s: request failed", self)
            self.close("a request failed unexpectedly")
            reply = None
        if reply is None or isinstance(reply, list):
            self._take_reply(answer, reply)
            self._send_ready()
            return
        task = self._loop.create_task(self._answer_later(reply, answer))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _answer_later(self, reply: Awaitable[list[Part] | None], answer: _Answer) -> None:
        try:
            parts = await reply
        except CloseConnection as request:
            self.close(str(request))
            parts = None
        except Exception:  # noqa: BLE001
            _log.exception("%s: reply failed", self)
            self.close("a reply failed unexpectedly")
            parts = None
        self._take_reply(answer, parts)
        if not self._is_sending_soon:
            # What else the same sync has made durable is ready within this turn of the loop, and
            # leaves in the same call: a send costs as much as parsing a request.
            self._is_sending_soon = True
            self._loop.call_soon(self._send_ready)

    # Replies.

    def _take_reply(self, answer: _Answer, parts: list[Part] | None) -> None:
        """Keep a reply until its turn comes."""
        if parts:
            self._shared.answers.hold(buffered_size(parts))
        answer.ready(parts)

    def _send_ready(self) -> None:
        """Send every reply whose turn has come."""
        self._is_sending_soon = False
        parts: list[Part] = []
        while self._answers and self._answers[0].is_ready:
            first = self._answers.popleft()
            parts += first.parts or ()
            self._in_flight -= 1
            self._in_flight_bytes -= first.request_bytes
        if parts and self._outbox is not None:
            self._outbox.write(parts)
        self._count_memory()
        if not self._is_reading:
            self.resume_reading()

    def _on_sent(self, size: int) -> None:
        self._shared.probe.bytes_sent(size)
        self.last_active_s = self._loop.time()

    def _on_send_error(self, error: Exception) -> None:
        if isinstance(error, ConnectionError):
            _log.debug("%s: closed by the client, %s", self, error)
        else:
            _log.warning("%s: sending failed, %s", self, error)
        self._abort()

    # Flow.

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on if every bound allows it."""
        if self._is_reading or self.is_ending or self._transport is None:
            return
        if self._may_read() and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        """Whether every bound allows to read; where memory does not, wait for it."""
        if self._in_flight >= self._shared.in_flight_requests_max:
            return False
        memory = self._shared.memory
        if self._held_bytes <= LITTLE_BYTES or memory.may_read(self):
            return True
        memory.wait(self)
        return memory.may_read(self)

    def _count_memory(self) -> None:
        """Tell the bound on memory what the requests of this connection take now."""
        held = self._frames.buffered_bytes + self._in_flight_bytes
        change, self._held_bytes = held - self._held_bytes, held
        if change > 0:
            self._shared.memory.hold(change)
        elif change < 0:
            self._shared.memory.give_back(-change)
        if not held:
            self._shared.memory.forget(self)

    def _wake(self) -> None:
        """Let whoever waits see that the connection is ending."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        if self._parked is not None:
            self._parked.cancel()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

"""Serves one client's connection: requests run one at a time, responses leave in order.

    socket --> FrameBuffer --> requests --> dispatch --> replies --> Outbox --> socket
                               (queue)     one at a time  (in order)

Requests start in the order of arrival. The next one starts as soon as the effects of the previous one
are in place, which for most requests is when their reply is ready. A Produce has taken effect once it
has appended; its reply waits for the disk, so `dispatch` returns an awaitable of it. Replies leave
strictly in the order of their requests.

A request that meets no earlier one skips the queue: it runs in the callback that received it until it
waits for something (`shortcuts.py`).

Everything that a peer can make the broker hold is bounded: the size of a frame, requests in flight,
bytes of all requests, unsent output. At a bound the connection stops reading; a frame that is too
large closes it. Queued requests share the loop with those of other connections in slices
(`server/runtime/turns.py`).

When a connection breaks, the complete requests that it received still run (an `acks=0` producer may
send and close); only their replies are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from protocol.wire.errors import ProtocolError
from protocol.wire.frame import FrameBuffer
from server.config.listeners.addresses import Address, SecurityProtocol
from server.net.decoded_size import request_memory_bytes
from server.net.mute import Mute
from server.net.outbox import Outbox
from server.net.replies import Answer, Replies, is_small
from server.net.send_queue import Part, SendQueue
from server.net.shared import Shared
from server.net.shortcuts import Shortcuts
from server.net.tls_outbox import TlsOutbox
from server.runtime.tasks import call_later, call_soon
from server.runtime.turns import Pace
from server.security.principal import ANONYMOUS, Principal
from server.security.quotas.connection_rates import ConnectionRates
from storage.threads import loop_thread

_log = logging.getLogger("server.net.connection")

SMALL_HELD_BYTES = 16 << 10
"""The broker reads from a connection whose requests hold no more memory than this even while memory is
short, so that clients with small requests do not wait for those with large ones."""


class Parked(Protocol):
    """A request that waits for data."""

    def cancel(self) -> None:
        """End the wait early."""


Identify = Callable[[asyncio.Transport], Principal]
"""Returns the identity of a client after its TLS handshake; raises ValueError if it has none."""


class CloseConnection(Exception):
    """Raised by a handler that can only answer by closing, as for a failed `acks=0` Produce."""


@loop_thread
class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one connection."""

    def __init__(
        self,
        shared: Shared,
        endpoint: Address,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        identify: Identify = lambda _: ANONYMOUS,
    ) -> None:
        # Constant after construction
        self._shared = shared
        self.endpoint = endpoint
        self.security_protocol = security_protocol
        self._identify = identify
        self._loop = asyncio.get_running_loop()
        # Known once connected
        self.client_host = ""
        self.client_port = 0
        self._transport: asyncio.Transport | None = None
        self._outbox: SendQueue | None = None
        self._pace = Pace(shared.turns)
        # State of authentication
        self.principal = ANONYMOUS
        """The identity of the client, by which ACLs and quotas are looked up."""
        self.sasl = None if shared.logins is None else shared.logins.session(endpoint.name)
        """The login of the client; None on listeners without SASL."""
        # State of reading: _held_bytes, the buffered and in-flight bytes of requests, is what this
        # connection has counted into the shared memory bound.
        self._frames = FrameBuffer(
            frame_bytes_max=self._frame_bytes_max(), shared=shared.receive_buffer
        )
        self._requests: deque[tuple[bytearray, Answer]] = deque()
        self._is_reading = True
        self._mute = Mute()
        self._held_bytes = 0
        self._in_flight_bytes = 0
        # State of answering: in flight = queued + running + answered but not yet sendable
        self._in_flight = 0
        self._arrival: asyncio.Future[None] | None = None
        self._begun: tuple[Awaitable[None], Answer] | None = None
        self._parked: Parked | None = None
        self._serve_task: asyncio.Task[None] | None = None
        self._shortcuts: Shortcuts | None = None
        self._reply_tasks: set[asyncio.Task[None]] = set()
        self.is_lost = False
        """The connection is gone or being aborted; no reply can be sent."""
        self._is_stopping = False
        self.last_active_s = self._loop.time()
        """When bytes were last received or sent, in seconds on the loop's clock."""
        self.opened_s = self.last_active_s
        self._is_new = True

    def __str__(self) -> str:
        return f"{self.client_host}:{self.client_port} ({self.endpoint.name})"

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.client_host, self.client_port = str(peer[0]), int(peer[1])
        try:
            self.principal = self._identify(self._transport)
        except ValueError:
            # `identify` has logged why.
            self.is_lost = True
            self._abort()
            return
        refusal = self._shared.limits.admit(self.client_host, self.endpoint.name)
        if refusal is not None:
            self._shared.warnings.say(self, f"connection refused, {refusal}")
            self._shared.probe.connection_refused(self.endpoint.name)
            self.is_lost = True
            self._abort()
            return
        self._outbox = self._made_outbox(self._transport)
        self._shared.connections.add(self)
        self._shared.probe.connection_opened(self.endpoint.name)
        replies = Replies(self._outbox, self._shared.answers, self._answered, loop=self._loop)
        self._shortcuts = Shortcuts(
            self._shared.shortcut,
            self,
            self._frames,
            replies,
            self._shared.turns,
            loop=self._loop,
        )
        self._serve_task = self._loop.create_task(self._serve(self._outbox, replies))
        self._shared.newcomers[self] = None
        if self._shared.rates is not None and self._shared.rates.are_bound:
            self._wait_for_turn(self._shared.rates)

    def _made_outbox(self, transport: asyncio.Transport) -> SendQueue:
        """Returns the send queue for the transport, which with TLS is the only way to the peer."""
        if self.security_protocol.has_tls:
            return TlsOutbox(
                transport,
                loop=self._loop,
                memory=self._shared.answers,
                bytes_max=self._shared.outbox_bytes_max,
                on_sent=self._on_sent,
                on_error=self._on_send_error,
                cold_reads=self._shared.cold_reads,
            )
        return Outbox(
            transport,
            loop=self._loop,
            memory=self._shared.answers,
            bytes_max=self._shared.outbox_bytes_max,
            on_sent=self._on_sent,
            on_error=self._on_send_error,
            sender=self._shared.sender,
        )

    def _wait_for_turn(self, rates: ConnectionRates) -> None:
        """Pause if connections are created too fast; close afterwards if the address creates them."""
        now_ms = self._loop.time() * 1000
        wait_ms, is_refused = rates.welcome(self.endpoint.name, self.client_host, now_ms)
        if wait_ms:
            self._shared.probe.connection_delayed(self.endpoint.name, wait_ms / 1000)
            # The transport begins to read when this returns, and could not be paused before that.
            call_soon("rate of connections", self.throttle, wait_ms / 1000)
        if is_refused:
            self._shared.newcomers.pop(self, None)
            self._shared.warnings.say(self, "connection refused, connections are created too fast")
            self._shared.probe.connection_refused(self.endpoint.name)
            call_later(wait_ms / 1000, "refusal of a connection", self._abort)

    def pause_writing(self) -> None:
        if isinstance(self._outbox, TlsOutbox):
            self._outbox.pause()

    def resume_writing(self) -> None:
        if isinstance(self._outbox, TlsOutbox):
            self._outbox.resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._shared.probe.bytes_received(nbytes)
        self.last_active_s = self._loop.time()
        try:
            self._frames.buffer_updated(nbytes)
            frame = self._frames.next_frame()
            if frame is not None and self._shortcuts is not None and self.is_free:
                frame = self._shortcuts.take(frame)
            while frame is not None:
                self._queue_request(frame)
                frame = self._frames.next_frame()
        except ProtocolError as error:
            self.refuse(error)
        # Not before the frames behind are counted: other connections would get their memory.
        if self._shortcuts is None or not self._shortcuts.send():
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
        self._shared.newcomers.pop(self, None)
        self._shared.limits.leave(self.client_host, self.endpoint.name)
        self._shared.probe.connection_closed(self.endpoint.name)
        self._wake()

    # Called by the listener and by handlers.

    def close(self, reason: str) -> None:
        """Close now, and drop unsent output, except for an answer that the send thread has."""
        if not self.is_lost:
            _log.info("%s: closed, %s", self, reason)
            self._abort()

    def refuse(self, error: ProtocolError) -> None:
        """Close the connection because the peer broke the protocol; others are not affected."""
        if not self.is_lost:
            self._shared.warnings.say(self, f"closed, {type(error).__name__}", f": {error}")
            self._shared.probe.protocol_error(self.endpoint.name)
            self._abort()

    def authenticate(self, principal: Principal) -> None:
        """Set the client's identity; from now on its requests may have any size."""
        self.principal = principal
        self._frames.frame_bytes_max = self._frame_bytes_max()

    def finish(self) -> None:
        """Close once the running request is answered; requests after it are dropped."""
        for _, answer in self._requests:
            self._in_flight -= 1
            self._in_flight_bytes -= answer.request_bytes
        self._requests.clear()
        self._frames.drop()
        self._count_memory()
        self._is_stopping = True
        self._pause_reading()
        self._wake_server()

    async def stop(self) -> None:
        """Answer the requests that were received, send the replies, then close."""
        self._is_stopping = True
        self._pause_reading()
        self._wake()
        if self._serve_task is not None:
            await asyncio.wait([self._serve_task])

    def throttle(self, seconds: float) -> None:
        """Neither read nor start a request for this long, because a quota is exceeded (KIP-219)."""
        if not self.is_ending:
            self._mute.begin(seconds, self.resume_reading)
            self._shared.memory.forget(self)
            self._pause_reading()

    def park(self, fetch: Parked | None) -> None:
        """Set the fetch to cancel when the connection breaks or stops; None if no fetch waits."""
        self._parked = fetch
        if fetch is not None and (self.is_lost or self._is_stopping):
            fetch.cancel()

    def is_idle_since(self, time_s: float) -> bool:
        """Returns whether no bytes moved since `time_s` while the broker waited for the client."""
        if self.last_active_s > time_s or self._outbox is None:
            return False
        return self._in_flight == 0 or self._outbox.pending_bytes > 0

    def is_stalled_since(self, time_s: float) -> bool:
        """Returns whether it holds memory for a peer that has moved no bytes since `time_s`."""
        if self.last_active_s > time_s or self._outbox is None:
            return False
        # While it is muted, its requests wait in memory.
        is_awaited = self._is_reading and self._frames.buffered_bytes > 0
        is_waiting = self._mute.is_on and self._held_bytes > SMALL_HELD_BYTES
        return is_awaited or is_waiting or self._outbox.pending_bytes > 0

    @property
    def is_muted(self) -> bool:
        """Whether it pauses because of a quota."""
        return self._mute.is_on

    @property
    def is_ending(self) -> bool:
        """Whether the connection is lost or stopping, so that a fetch need not wait for data."""
        return self.is_lost or self._is_stopping

    def _frame_bytes_max(self) -> int:
        """Returns the size of the largest request that the client may send now."""
        bytes_max = self._shared.frame_bytes_max
        if self.sasl is None or self.sasl.is_complete:
            return bytes_max
        return min(bytes_max, self.sasl.listener.receive_bytes_max)

    # Requests.

    @property
    def is_free(self) -> bool:
        """Whether no request runs or is queued, and nothing keeps the next one from starting."""
        return (
            self._arrival is not None
            and not self._arrival.done()
            and not self._mute.is_on
            and not self.is_ending
            and self._outbox is not None
            and not self._outbox.pending_bytes
            and (self.sasl is None or self.sasl.is_complete)
        )

    def continue_with(self, running: Awaitable[None], answer: Answer) -> None:
        """Let the serving task run the rest of a request that has begun, before the queued ones."""
        self._begun = running, answer
        self._wake_server()

    def count_request(self, frame: bytearray) -> Answer:
        """Count a request that is received and not answered. Returns its place among the answers."""
        answer = Answer(request_memory_bytes(frame))
        if self._is_new:
            self._is_new = False
            self._shared.newcomers.pop(self, None)
        self._in_flight += 1
        self._in_flight_bytes += answer.request_bytes
        return answer

    def _queue_request(self, frame: bytearray) -> None:
        self._requests.append((frame, self.count_request(frame)))
        self._wake_server()

    async def _serve(self, outbox: SendQueue, replies: Replies) -> None:
        """Run requests until the connection ends, then drain its replies and close it."""
        # Coroutines are called only if there is something to wait for: each costs every request a call.
        while self._requests or self._begun is not None or await self._wait_for_request():
            if self._begun is not None:
                (running, answer), self._begun = self._begun, None
                await running
                del running
            else:
                if self._mute.is_on:
                    await self._mute.over()
                if outbox.pending_bytes:
                    await outbox.room()
                    if not self._shared.answers.has_room:
                        await outbox.drained()
                frame, answer = self._requests.popleft()
                replies.expect(answer)
                await self.run(frame, answer, replies)
                del frame
            if answer.is_ready:
                self._send(answer, replies)
            if self._pace.is_over:
                await self._pace.rest()
        if self._reply_tasks:
            await asyncio.wait(self._reply_tasks)
        if self._shortcuts is not None:
            await self._shortcuts.end()
        await outbox.drained()
        replies.close()
        if self._transport is not None and not self.is_lost:
            outbox.close()
            self._transport.close()
        # Like the replies, both refer back to this connection. Without the cycles its memory is freed at
        # once, not at the next garbage collection.
        self._serve_task = self._transport = self._shortcuts = None

    async def _wait_for_request(self) -> bool:
        """Wait until a request is queued or begun. Returns False once the connection is ending."""
        while not self._requests and self._begun is None:
            if self.is_ending:
                return False
            self._arrival = self._loop.create_future()
            await self._arrival
            self._arrival = None
            self._pace.begin()
        return True

    async def run(self, frame: bytearray, answer: Answer, replies: Replies) -> None:
        """Run one request until the next one may start. Its answer may then be ready."""
        try:
            reply = await self._shared.dispatch(frame, self)
        except ProtocolError as error:
            self.refuse(error)
            reply = None
        except CloseConnection as request:
            self.close(str(request))
            reply = None
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - close this connection only
            # A cancellation is that of what the request waits for: nothing cancels the serving task. Any
            # other exception is a bug in dispatch, which turns those of handlers into answers.
            _log.exception("%s: request failed", self)
            self.close("a request failed unexpectedly")
            reply = None
        if reply is None or isinstance(reply, list):
            replies.fill(answer, reply)
            return
        task = self._loop.create_task(self._answer_later(reply, answer, replies))
        self._reply_tasks.add(task)
        task.add_done_callback(self._reply_tasks.discard)

    def _send(self, answer: Answer, replies: Replies) -> None:
        """Send an answer that is ready, if it is its turn; it may wait for that of the next request."""
        if self._requests and is_small(answer.parts):
            replies.send_soon()
        else:
            replies.send_ready()

    async def _answer_later(
        self, reply: Awaitable[list[Part] | None], answer: Answer, replies: Replies
    ) -> None:
        try:
            parts = await reply
        except CloseConnection as request:
            self.close(str(request))
            parts = None
        except Exception:  # noqa: BLE001
            _log.exception("%s: reply failed", self)
            self.close("a reply failed unexpectedly")
            parts = None
        replies.fill(answer, parts)
        replies.send_soon()  # The same sync may complete more replies in this turn of the loop.

    # Replies.

    def _answered(self, count: int, request_bytes: int) -> None:
        """Stop counting requests whose replies have left for the outbox."""
        self._in_flight -= count
        self._in_flight_bytes -= request_bytes
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

    # Flow control.

    def _pause_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading if every bound allows it."""
        if self._is_reading or self.is_ending or self._transport is None:
            return
        if self._may_read() and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _may_read(self) -> bool:
        """Returns whether every bound allows reading; queues for memory if that is short."""
        if self._in_flight >= self._shared.in_flight_requests_max or self._mute.is_on:
            return False
        memory = self._shared.memory
        if self._held_bytes <= SMALL_HELD_BYTES or memory.may_read(self):
            return True
        memory.wait(self)
        return memory.may_read(self)

    def _count_memory(self) -> None:
        """Update the shared memory bound with what this connection's requests hold now."""
        held = self._frames.buffered_bytes + self._in_flight_bytes
        change, self._held_bytes = held - self._held_bytes, held
        if not change:
            return
        if change > 0:
            self._shared.memory.hold(change)
        else:
            self._shared.memory.give_back(-change)
        if not held:
            self._shared.memory.forget(self)

    def _wake(self) -> None:
        """Wake the serving task and the parked fetch: the connection is ending."""
        self._mute.end()
        self._wake_server()
        if self._parked is not None:
            self._parked.cancel()

    def _wake_server(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

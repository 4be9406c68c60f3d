"""The send queue of one connection: sends buffers and file regions in order.

    parts:  | buffer | buffer | region of a segment file | buffer | ...
            `----- sendmsg ----'`------- sendfile -------'    a buffer alone: send, or the send thread

The transport only reads. The outbox sends on its socket directly, because uvloop has no
`loop.sendfile`, and because two writers on one stream could not keep the order. The loop refuses to
watch a transport's own descriptor for writability, so the outbox duplicates it, but only while output
waits for the peer: an idle connection has one descriptor. A transport that is lost closes its
descriptor, and the system may give the number to another connection, so nothing is sent on it
afterwards.

While many connections get small answers, the send thread sends them (answer_sender.py), at most one of
each connection at a time. The outbox takes it back, or knows its result, before it sends anything else
and before it is closed.

A region pins a segment; it is released as soon as its last byte is sent or the outbox is closed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from cleaner.rules.text import count_text
from server.net.answer_sender import AnswerSender
from server.net.limits import AnswerMemory
from server.net.send_queue import Part, RegionToSend, SendQueue
from server.runtime.tasks import call_later
from storage.files.errors import StorageError
from storage.threads import loop_thread

TURN_BYTES_MAX = 4 << 20
"""How much one connection may send before the loop serves the others."""

SENDFILE_BYTES_MAX = 1 << 20
"""Bound on one sendfile call, because the call blocks on pages that are not in memory."""

IOVECS_MAX = 64

RETRY_SECONDS = 0.02
"""Interval between attempts to send to a slow peer while no descriptor is left to watch it with."""


@loop_thread
class Outbox(SendQueue):
    """The send queue of a connection without TLS."""

    __slots__ = (
        "_counted_bytes",
        "_descriptor",
        "_duplicate",
        "_is_watched",
        "_retry",
        "_sender",
        "_socket",
        "_ticket",
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
        sender: AnswerSender,
    ) -> None:
        """Create an outbox that sends on the socket of `transport`, which still owns the socket."""
        super().__init__(
            transport,
            loop=loop,
            memory=memory,
            bytes_max=bytes_max,
            on_sent=on_sent,
            on_error=on_error,
        )
        # Constant after construction
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self._socket.setblocking(False)
        self._descriptor = self._socket.fileno()
        self._sender = sender
        # State: while the queue is not empty, the loop watches the duplicate for writability, or, if
        # no descriptor is left for a duplicate, a timer retries. While the send thread has an answer,
        # the queue is empty.
        self._is_watched = False
        self._duplicate: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._ticket: int | None = None
        # How many bytes of the queue were reported to `on_sent` before the send thread returned them.
        self._counted_bytes = 0

    def write(self, parts: Sequence[Part], *, is_late: bool = False) -> None:
        if self._ticket is not None:
            self._settle()
        if len(parts) == 1 and not self._queue and not self._is_closed:
            only = parts[0]
            if isinstance(only, (bytes, bytearray)) and not self._transport.is_closing():
                self._send_alone(only, is_late=is_late)
                return
        super().write(parts)

    async def drained(self) -> None:
        if self._ticket is not None:
            self._settle()
            self._send_if_ready()
        await super().drained()

    def not_sent(self, rest: bytes, error: int) -> None:
        """Send the rest of an answer that the send thread could not send whole."""
        self._ticket = None
        if self._is_closed:
            return
        if error in (0, errno.EAGAIN, errno.EINTR):
            self._take_back(rest)
            self._send_if_ready()
        else:
            self._fail(OSError(error, os.strerror(error)))

    def _settle(self) -> None:
        """Know the result of the answer that the send thread has, or take it back."""
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            return
        answer = self._sender.withdraw(ticket)
        if self._is_closed or self._transport.is_closing():
            # The queue is no longer sent, but this answer was due before the connection ended.
            self._send_last(answer)
        else:
            self._take_back(answer)

    def _take_back(self, rest: bytes) -> None:
        """Put what the send thread has not sent into the queue, which is empty."""
        if rest:
            self._memory.hold(len(rest))
            self._counted_bytes += len(rest)
            self._put(memoryview(rest), len(rest))

    def _send_alone(self, answer: bytes | bytearray, *, is_late: bool) -> None:
        """Send the only part of an answer without the queue, which is empty, or let the send thread send
        it, which copies it. The queue gets what the kernel does not take."""
        size = len(answer)
        self._ticket = self._sender.hand_over(self, self._descriptor, answer, is_late=is_late)
        if self._ticket is not None:
            self._memory.give_back(size)
            self._on_sent(size)
            return
        try:
            sent = self._socket.send(answer)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._memory.give_back(size)
            self._fail(error)
            return
        if sent:
            self._memory.give_back(sent)
            self._on_sent(sent)
        if sent < size:
            self._put(memoryview(answer)[sent:], size - sent)
            self._watch(wanted=True)

    def _send_if_ready(self) -> None:
        if not self._is_watched:
            self._send()

    def _stop_sending(self) -> int:
        self._settle()
        self._watch(wanted=False)
        self._socket.detach()
        return 0

    def _send_last(self, answer: bytes) -> None:
        """Send what the send thread has not begun to send when the connection ends, as far as the kernel
        takes it. The transport closes the descriptor only after `connection_lost`.
        """
        if answer:
            with suppress(OSError):
                self._socket.send(answer)

    def _send(self) -> None:
        """Send until the kernel takes no more, the queue is empty, or the turn is over."""
        if self._transport.is_closing():
            # The peer is gone, or gets no more; `connection_lost` follows.
            return
        before = self.pending_bytes
        failure: Exception | None = None
        try:
            while self._queue and before - self.pending_bytes < TURN_BYTES_MAX:
                head = self._queue[0]
                if isinstance(head, RegionToSend):
                    self._send_region(head)
                else:
                    self._send_buffers()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, StorageError) as error:
            failure = error
        if before > self.pending_bytes:
            self._count_sent(before - self.pending_bytes)
        if failure is not None:
            self._fail(failure)
            # The exception's traceback refers to this frame: break the cycle.
            del failure
            return
        self._watch(wanted=bool(self._queue))
        self._check_pending_bytes_are_queued()
        self._wake_waiters()

    def _count_sent(self, size: int) -> None:
        counted = min(size, self._counted_bytes)
        self._counted_bytes -= counted
        self._on_sent(size - counted)

    def _send_buffers(self) -> None:
        """Send the buffers at the head of the queue in one call."""
        buffers: list[memoryview] = []
        for item in self._queue:
            if isinstance(item, RegionToSend) or len(buffers) == IOVECS_MAX:
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

    def _send_region(self, item: RegionToSend) -> None:
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

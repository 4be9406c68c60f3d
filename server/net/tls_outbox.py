"""The send queue of a connection with TLS: every byte passes the transport, which encrypts it.

    parts:  | buffer | buffer | region of a segment file | buffer | ...
            `---- one piece --'`-- read in pieces --'
                   |                   |
                   `---- transport.write, until it asks to pause ----> encrypted, to the kernel

`sendfile` and `sendmsg` on the socket would bypass the encryption, so a region is read into memory, a
piece at a time. A piece that the page cache does not hold is read in a thread. The transport asks to
pause as soon as the kernel takes no more, so at most one piece waits in the transport.

Bytes that the transport has accepted while it is paused count as unsent until it resumes: so a peer that
reads nothing is seen as idle, and its memory stays counted.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable

from cleaner.rules.text import count_text
from server.net.limits import AnswerMemory
from server.net.send_queue import RegionToSend, SendQueue
from server.runtime.cold_reads import ColdReads
from server.runtime.tasks import call_soon, spawn
from storage.files.errors import StorageError
from storage.threads import loop_thread

PIECE_BYTES = 128 << 10
"""Bound on the bytes that are encrypted in one call."""

TURN_BYTES_MAX = 1 << 20
"""How much one connection may send before the loop serves the others: about a millisecond of AES."""

NOT_CACHED = (errno.EAGAIN, errno.EOPNOTSUPP)
"""The page cache does not hold the bytes, or the file system cannot say so."""


@loop_thread
class TlsOutbox(SendQueue):
    """The send queue of a connection with TLS. Its connection passes `pause` and `resume` on."""

    __slots__ = (
        "_being_read",
        "_cold_reads",
        "_is_paused",
        "_is_scheduled",
        "_unconfirmed",
        "_unconfirmed_held",
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
        cold_reads: ColdReads,
    ) -> None:
        """Create an outbox that writes to `transport`, which nobody else writes to."""
        super().__init__(
            transport,
            loop=loop,
            memory=memory,
            bytes_max=bytes_max,
            on_sent=on_sent,
            on_error=on_error,
        )
        self._cold_reads = cold_reads
        # State: at most one of paused, reading and scheduled keeps a queue that is not empty from
        # being sent. _unconfirmed bytes were written to a transport that has asked to pause since.
        self._is_paused = False
        self._is_scheduled = False
        self._being_read: RegionToSend | None = None
        self._unconfirmed = 0
        self._unconfirmed_held = 0

    def pause(self) -> None:
        """Write no more: the kernel takes none at the moment."""
        self._is_paused = True

    def resume(self) -> None:
        """Write again: the transport has handed everything to the kernel."""
        self._is_paused = False
        if self._is_closed:
            return
        self._confirm()
        self._schedule()
        self._wake_waiters()

    def _send_if_ready(self) -> None:
        if not (self._is_paused or self._is_scheduled or self._being_read):
            self._send()

    def _stop_sending(self) -> int:
        held, self._unconfirmed, self._unconfirmed_held = self._unconfirmed_held, 0, 0
        return held

    def _unconfirmed_bytes(self) -> int:
        return self._unconfirmed

    def _release(self, item: RegionToSend) -> None:
        # A thread reads from the file of that region; `_read_cold` releases it afterwards.
        if item is not self._being_read:
            item.region.release()

    def _send(self) -> None:
        """Write until the transport asks to pause, the queue is empty, or the turn is over."""
        if self._transport.is_closing():
            # `connection_lost` follows.
            return
        written = 0
        try:
            while self._queue and written < TURN_BYTES_MAX and not self._is_waiting():
                written += self._send_piece()
        except (OSError, StorageError) as error:
            self._fail(error)
            return
        if self._queue and not self._is_waiting():
            self._schedule()
        self._check_pending_bytes_are_queued()
        self._wake_waiters()

    def _is_waiting(self) -> bool:
        return self._is_paused or self._being_read is not None

    def _schedule(self) -> None:
        if self._queue and not self._is_scheduled:
            self._is_scheduled = True
            call_soon("send over TLS", self._send_later)

    def _send_later(self) -> None:
        self._is_scheduled = False
        if not self._is_closed and not self._is_waiting():
            self._send()

    def _send_piece(self) -> int:
        """Write the next piece. Returns its size; 0 if a thread has to read it first."""
        head = self._queue[0]
        if not isinstance(head, RegionToSend):
            piece: bytes | bytearray | memoryview = self._taken_buffers()
            self._write(piece, held=len(piece))
            return len(piece)
        data = _read_cached(head)
        if data is None:
            self._being_read = head
            spawn(self._read_cold(head), "read for a TLS connection")
            return 0
        self._write_region(head, data)
        return len(data)

    def _taken_buffers(self) -> bytes | memoryview:
        """Takes buffers off the queue, at most one piece of them."""
        taken: list[memoryview] = []
        size = 0
        while self._queue and size < PIECE_BYTES:
            head = self._queue[0]
            if isinstance(head, RegionToSend):
                break
            part = head[: PIECE_BYTES - size]
            taken.append(part)
            size += len(part)
            if len(part) < len(head):
                self._queue[0] = head[len(part) :]
            else:
                self._queue.popleft()
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _write_region(self, item: RegionToSend, data: bytearray) -> None:
        """Write bytes that were read from the region at the head of the queue."""
        item.sent_bytes += len(data)
        if item.sent_bytes == item.region.size:
            self._queue.popleft()
            item.region.release()
        self._memory.hold(len(data))
        self._write(data, held=len(data))

    def _write(self, data: bytes | bytearray | memoryview, *, held: int) -> None:
        self._unconfirmed += len(data)
        self._unconfirmed_held += held
        self._transport.write(data)
        if not self._is_paused and not self._is_closed:
            self._confirm()

    def _confirm(self) -> None:
        """Count as sent what the transport has handed to the kernel."""
        sent, held = self._unconfirmed, self._unconfirmed_held
        self._unconfirmed = self._unconfirmed_held = 0
        self.pending_bytes -= sent
        self._memory.give_back(held)
        if sent:
            self._on_sent(sent)

    async def _read_cold(self, item: RegionToSend) -> None:
        """Read the next piece of a region in a thread, write it, and continue."""
        failure: Exception | None = None
        data = bytearray()
        try:
            data = await self._cold_reads.run_piece(
                item.region.fileno, item.region.position + item.sent_bytes, _piece_size(item)
            )
            _check_read(item, data)
        except (OSError, StorageError) as error:
            failure = error
        self._being_read = None
        if self._is_closed:
            item.region.release()
        elif failure is not None:
            self._fail(failure)
        else:
            if not self._transport.is_closing():
                self._write_region(item, data)
            self._schedule()
            self._wake_waiters()


def _piece_size(item: RegionToSend) -> int:
    return min(PIECE_BYTES, item.region.size - item.sent_bytes)


def _read_cached(item: RegionToSend) -> bytearray | None:
    """Returns the next bytes of a region, up to a piece; None if they must be read from the disk."""
    data = bytearray(_piece_size(item))
    position = item.region.position + item.sent_bytes
    try:
        count = os.preadv(item.region.fileno, (data,), position, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in NOT_CACHED:
            return None
        raise
    del data[count:]
    _check_read(item, data)
    return data


def _check_read(item: RegionToSend, data: bytearray) -> None:
    if not data:
        # The peer already has the frame's size and waits for all of it, so the only way out is to
        # close the connection.
        rest = count_text(item.region.size - item.sent_bytes, "byte")
        raise OSError(f"segment file ends {rest} before the region to send")

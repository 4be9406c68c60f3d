"""The transport of a connection with TLS: OpenSSL reads from the socket and writes to it.

    socket --> SSL_read, one record at a time --> protocol.get_buffer() --> protocol.buffer_updated()
    socket <-- SSL_write, one record at a time <-- write()                 pause_writing, resume_writing

    open --close()--> flushing --all is sent--> ending --the peer has closed, or time is over--> closed
      `------------------- abort(), an error, the end of the stream -----------------------------^

The loop's own TLS transport keeps three buffers for each connection, which never shrink: 256 KiB to
receive into, and OpenSSL's memory streams for both directions. Here OpenSSL works on the socket itself.
It frees its buffers between records (SSL_MODE_RELEASE_BUFFERS, which Python sets), so an idle connection
has none.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from server.runtime.tasks import call_later, call_soon, report_failure
from storage.threads import loop_thread

RECORD_BYTES_MAX = 16 << 10
"""The most that one TLS record holds."""

TURN_BYTES_MAX = 256 << 10
"""How much one connection receives before the loop serves the others."""

SMALL_BYTES_MAX = 4 << 10
"""After a record smaller than this, nothing more is expected at once."""

SHUTDOWN_SECONDS = 2.0
"""How long a closed connection sends what remains and waits for the peer to close."""


class _State(Enum):
    OPEN = "open"
    FLUSHING = "flushing"
    ENDING = "ending"
    CLOSED = "closed"


@loop_thread
class TlsTransport(asyncio.Transport):
    """An `asyncio.Transport` over a socket whose handshake is complete.

    After `pause_writing` the protocol writes nothing until `resume_writing`.
    """

    __slots__ = (
        "_deadline",
        "_fileno",
        "_is_reader_added",
        "_is_reading",
        "_is_writer_added",
        "_loop",
        "_protocol",
        "_socket",
        "_state",
        "_unsent",
    )

    def __init__(
        self, connected: ssl.SSLSocket, peername: object, protocol: asyncio.BufferedProtocol
    ) -> None:
        """Create the transport, which owns the socket from now on; `begin` starts it.

        Args:
            peername: the address of the client. The socket may no longer know it: a client that closed
                right after its handshake has reset the connection.
        """
        super().__init__({"peername": peername, "ssl_object": connected})
        # Constant after construction
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._fileno = connected.fileno()
        self._protocol = protocol
        # State: _unsent was written, and the socket had no room for it.
        self._state = _State.OPEN
        self._is_reading = True
        self._unsent: memoryview | None = None
        self._is_reader_added = False
        self._is_writer_added = False
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Tell the protocol that it is connected, and read."""
        self._run(self._begin)

    def _begin(self) -> None:
        self._protocol.connection_made(self)
        self._follow()

    # What the protocol calls.

    def pause_reading(self) -> None:
        self._is_reading = False
        self._follow()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._follow()
        if self._state is _State.OPEN and self._socket.pending():
            # The rest of a record is in memory, so the socket does not become readable for it.
            call_soon("read over TLS", self._run, self._read)

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._state is not _State.OPEN

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._state is not _State.OPEN:
            return
        assert self._unsent is None, "the protocol writes although it should pause"
        self._unsent = memoryview(data)
        self._send()
        if self._unsent is not None:
            self._protocol.pause_writing()

    def close(self) -> None:
        """Send what was written, end TLS, and close when the peer has closed or time is over."""
        if self._state is not _State.OPEN:
            return
        self._state = _State.FLUSHING
        self._deadline = call_later(SHUTDOWN_SECONDS, "end of TLS", self.abort)
        self._end_when_flushed()

    def abort(self) -> None:
        self._lose(None)

    # Reading.

    def _read(self) -> None:
        """Receive until the socket is empty, the protocol pauses, or the turn is over."""
        received, is_empty = 0, False
        while self._state is _State.OPEN and self._is_reading and not is_empty:
            if received >= TURN_BYTES_MAX:
                # The socket does not become readable for the rest of a record.
                call_soon("read over TLS", self._run, self._read)
                return
            count, is_empty, is_end = self._fill(memoryview(self._protocol.get_buffer(-1)))
            # With 0 bytes the protocol releases its buffer.
            self._protocol.buffer_updated(count)
            received += count
            if is_end:
                self._protocol.eof_received()
                self.close()

    def _fill(self, buffer: memoryview[Any]) -> tuple[int, bool, bool]:
        """Receive records into a buffer.

        Returns the bytes received, whether the socket is probably empty, and whether the stream ended.
        """
        filled, size = 0, len(buffer)
        with buffer:
            try:
                while filled < size:
                    with buffer[filled:] as rest:
                        count = self._socket.recv_into(rest)
                    filled += count
                    if not count:
                        return filled, True, True
                    if count < SMALL_BYTES_MAX and not self._socket.pending():
                        # A small request. To look for more in vain would cost more than one more call.
                        return filled, True, False
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return filled, True, False
        return filled, False, False

    # Writing.

    def _send(self) -> None:
        """Send records until the socket takes no more or nothing is unsent."""
        try:
            while self._unsent is not None:
                # OpenSSL sends one record, or nothing.
                rest = self._unsent[self._socket.send(self._unsent) :]
                self._unsent = rest or None
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._lose(error)
            return
        self._follow()

    def _send_rest(self) -> None:
        self._send()
        if self._unsent is not None:
            return
        if self._state is _State.OPEN:
            self._protocol.resume_writing()
        elif self._state is _State.FLUSHING:
            self._end_when_flushed()

    # Ending.

    def _end_when_flushed(self) -> None:
        """Send TLS's last message, and wait: a close with unread bytes resets the connection."""
        if self._unsent is None:
            self._state = _State.ENDING
            with suppress(OSError):
                self._socket.unwrap()
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._lose(error)
        self._follow()

    def _discard(self) -> None:
        """Receive what the peer still sends, as it is on the wire."""
        if not self._socket.recv(RECORD_BYTES_MAX):
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        """Close the socket, and tell the protocol in the loop's next turn."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        self._unsent = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._follow()
        self._socket.close()
        call_soon("end of a TLS connection", self._protocol.connection_lost, error)

    # The loop.

    def _follow(self) -> None:
        """Wait for exactly those events of the socket that matter in this state."""
        is_read = self._state is _State.ENDING or (self._state is _State.OPEN and self._is_reading)
        if is_read != self._is_reader_added:
            self._is_reader_added = is_read
            if is_read:
                self._loop.add_reader(self._fileno, self._run, self._on_readable)
            else:
                self._loop.remove_reader(self._fileno)
        is_written = self._unsent is not None
        if is_written != self._is_writer_added:
            self._is_writer_added = is_written
            if is_written:
                self._loop.add_writer(self._fileno, self._run, self._send_rest)
            else:
                self._loop.remove_writer(self._fileno)

    def _on_readable(self) -> None:
        if self._state is _State.ENDING:
            self._discard()
        else:
            self._read()

    def _run(self, step: Callable[[], None]) -> None:
        """Run a step for the loop; an error closes the connection and no other."""
        try:
            step()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - close this connection and let the others continue
            report_failure("TLS connection", error)
            self._lose(error)

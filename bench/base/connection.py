"""A blocking connection that sends frames and reads answers, with many requests in flight."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

SIZE = struct.Struct(">i")
API = struct.Struct(">4xhh")
"""The key and the version of a request, after its size."""
ANSWER_BYTES = 1 << 20


class ConnectionClosed(ConnectionError):
    """The server closed a connection instead of answering, as after a request that it does not know."""

    def __init__(self, frame: bytes) -> None:
        self.api_key, self.version = API.unpack_from(frame)
        request = f"a request with key {self.api_key} and version {self.version}"
        super().__init__(f"the broker closed the connection after {request}")


class Connection:
    """One client connection; it reads all answers into the same buffer."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket_to(port, tls)
        self._answer = bytearray(ANSWER_BYTES)
        self._sent = b""

    def close(self) -> None:
        self._socket.close()

    def detach(self) -> int:
        """Returns the descriptor, which the caller closes; TLS, if any, ends without a word."""
        return self._socket.detach()

    def send(self, frame: bytes) -> None:
        self._sent = frame
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """Read one whole answer without its size; valid until the next call."""
        self._read_exactly(memoryview(self._answer)[: SIZE.size])
        (size,) = SIZE.unpack_from(self._answer)
        if size > len(self._answer):
            self._answer = bytearray(size)
        answer = memoryview(self._answer)[:size]
        self._read_exactly(answer)
        return answer

    def has_answer_within(self, seconds: float) -> bool:
        """Wait for the next answer. Returns whether it begins in time."""
        ready, _, _ = select.select([self._socket], [], [], seconds)
        return bool(ready)

    def ask(self, frame: bytes) -> memoryview:
        """Send one request and read its answer."""
        self.send(frame)
        return self.receive()

    def _read_exactly(self, view: memoryview) -> None:
        received = 0
        while received < len(view):
            count = self._socket.recv_into(view[received:])
            if count == 0:
                raise ConnectionClosed(self._sent)
            received += count


def socket_to(port: int, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Connect to a server on this machine; with `tls`, after a handshake."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")


def answer_to(connection: socket.socket, frame: bytes) -> bytes:
    """Send one request and read its answer, returned without its size."""
    connection.sendall(frame)
    (size,) = SIZE.unpack(_exactly(connection, SIZE.size, frame))
    return _exactly(connection, size, frame)


def _exactly(connection: socket.socket, size: int, frame: bytes) -> bytes:
    """Read so many bytes of the answer to a frame, also over TLS, where MSG_WAITALL does not exist."""
    read = bytearray()
    while len(read) < size:
        if not (piece := connection.recv(size - len(read))):
            raise ConnectionClosed(frame)
        read += piece
    return bytes(read)


@contextmanager
def connected(port: int, tls: ssl.SSLContext | None = None) -> Iterator[Connection]:
    """Open a connection to a broker on this machine, and close it at the end."""
    with closing(Connection(port, tls)) as connection:
        yield connection


def is_listening_within(
    seconds: float, port: int, is_alive: Callable[[], bool] = lambda: True
) -> bool:
    """Returns whether the server accepts connections on `port` before the time is over or it dies."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and is_alive():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.002)
        else:
            return True
    return False

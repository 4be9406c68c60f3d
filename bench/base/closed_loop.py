"""Many connections, each with one request on its way: a load whose rate the server decides."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from bench.base.connection import SIZE, ConnectionClosed, answer_to, socket_to

READ_BYTES = 64 << 10


@contextmanager
def closed_loop(
    port: int, frames: Sequence[bytes], tls: ssl.SSLContext | None = None
) -> Iterator[Callable[[int], float]]:
    """Open a connection for each frame, as `closed_loops` does, all to one server."""
    with closed_loops([(port, frame) for frame in frames], tls) as rate:
        yield rate


@contextmanager
def closed_loops(
    requests: Sequence[tuple[int, bytes]], tls: ssl.SSLContext | None = None
) -> Iterator[Callable[[int], float]]:
    """Open a connection for each frame to its port; each sends its frame again once it is answered.

    All answers to a frame have the same size. Yields a function that waits for so many answers and
    returns how many of them arrive in a second.
    """
    with ExitStack() as stack:
        poll = select.epoll()
        stack.callback(poll.close)
        clients = dict[int, _Client]()
        for port, frame in requests:
            connection = stack.enter_context(closing(socket_to(port, tls)))
            # Answered before the next one connects: the queue of a listener is short, and a client that
            # finds it full waits for a second.
            size = SIZE.size + len(answer_to(connection, frame))
            clients[connection.fileno()] = _Client(connection, frame, size)
            poll.register(connection, select.EPOLLIN)
        for client in clients.values():
            client.send()
        yield lambda count: _answered_rate(poll, clients, count)


def answered_rate(
    port: int, frames: Sequence[bytes], count: int, tls: ssl.SSLContext | None = None
) -> float:
    """Returns how many requests a second a server answers: `count`, on a connection for each frame."""
    with closed_loop(port, frames, tls) as rate:
        return rate(count)


def _answered_rate(poll: select.epoll, clients: Mapping[int, _Client], count: int) -> float:
    started = time.perf_counter()
    left = count
    while left > 0:
        for number, _ in poll.poll():
            client = clients[number]
            if client.is_answered():
                client.send()
                left -= 1
    return count / (time.perf_counter() - started)


class _Client:
    """One connection."""

    __slots__ = ("_buffer", "_frame", "_missing", "_size", "_socket")

    def __init__(self, connection: socket.socket, frame: bytes, size: int) -> None:
        self._socket = connection
        self._frame = frame
        self._size = self._missing = size
        self._buffer = bytearray(READ_BYTES)

    def send(self) -> None:
        """Send the frame."""
        self._socket.sendall(self._frame)

    def is_answered(self) -> bool:
        """Read what is there. Returns whether the answer is complete."""
        received = self._socket.recv_into(self._buffer)
        if not received:
            raise ConnectionClosed(self._frame)
        self._missing -= received
        if self._missing:
            return False
        self._missing = self._size
        return True

"""Many connections, each with one request on its way: a load whose rate the server decides."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing

from bench.base.connection import SIZE, socket_to

READ_BYTES = 64 << 10


def answered_rate(port: int, frames: Sequence[bytes], count: int) -> float:
    """Returns how many requests a second a server answers: `count`, on a connection for each frame.

    Each connection sends its frame once more as soon as it is answered. All answers to a frame have the
    same size.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket_to(port))) for _ in frames]
        sizes = [_first_size(each, frame) for each, frame in zip(sockets, frames, strict=True)]
        poll = select.epoll()
        stack.callback(poll.close)
        by_number = {
            each.fileno(): _Client(each, frame, size)
            for each, frame, size in zip(sockets, frames, sizes, strict=True)
        }
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        started = time.perf_counter()
        for client in by_number.values():
            client.send()
        left = count
        while left > 0:
            for number, _ in poll.poll():
                client = by_number[number]
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
            raise ConnectionError("the broker closed the connection")
        self._missing -= received
        if self._missing:
            return False
        self._missing = self._size
        return True


def _first_size(connection: socket.socket, frame: bytes) -> int:
    """Send a frame once. Returns the size of its answer, with that of the size itself."""
    connection.sendall(frame)
    (size,) = SIZE.unpack(connection.recv(SIZE.size, socket.MSG_WAITALL))
    connection.recv(size, socket.MSG_WAITALL)
    return SIZE.size + int(size)

"""The machine's own limit: servers that do the least a broker could do with the same bytes.

    produce     receive the frame, CRC-32C it, write it to a file, answer
    fetch       receive the request, sendfile a region of a file after a header
    ping        receive 200 bytes, answer 64

Each runs in a process of its own, as the broker does: `python -m bench.null_broker MODE PORT FILE`.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

from protocol.batch_scan import crc32c

SIZE = struct.Struct(">i")
PRODUCE_ANSWER = SIZE.pack(60) + bytes(60)
PING_REQUEST_BYTES = 200
PING_ANSWER = bytes(64)
FETCH_REQUEST = struct.Struct(">qi")


def read_exactly(connection: socket.socket, view: memoryview) -> bool:
    """Fill `view`; False when the peer has closed."""
    received = 0
    while received < len(view):
        count = connection.recv_into(view[received:])
        if count == 0:
            return False
        received += count
    return True


def serve_produce(connection: socket.socket, path: Path) -> None:
    buffer = memoryview(bytearray(4 << 20))
    target = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while read_exactly(connection, buffer[: SIZE.size]):
        (size,) = SIZE.unpack_from(buffer)
        frame = buffer[:size]
        if not read_exactly(connection, frame):
            break
        crc32c(frame)
        os.write(target, frame)
        connection.sendall(PRODUCE_ANSWER)
    os.close(target)


def serve_fetch(connection: socket.socket, path: Path) -> None:
    request = memoryview(bytearray(FETCH_REQUEST.size))
    source = os.open(path, os.O_RDONLY)
    while read_exactly(connection, request):
        position, size = FETCH_REQUEST.unpack_from(request)
        connection.sendall(SIZE.pack(size), socket.MSG_MORE)
        end = position + size
        while position < end:
            position += os.sendfile(connection.fileno(), source, position, end - position)
    os.close(source)


def serve_ping(connection: socket.socket, _: Path) -> None:
    request = memoryview(bytearray(PING_REQUEST_BYTES))
    while read_exactly(connection, request):
        connection.sendall(PING_ANSWER)


MODES = {"produce": serve_produce, "fetch": serve_fetch, "ping": serve_ping}


def main(mode: str, port: str, path: str) -> None:
    """Serve one connection after another until killed."""
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                MODES[mode](connection, Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:4])

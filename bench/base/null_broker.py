"""The machine's own limit: servers that do only the minimum that a broker must do with the same bytes.

    produce     receive the frame, CRC-32C it, write it to a file, answer
    synced      the same, but answer after an fdatasync that began after the write; with FILES and
                BATCHES, each frame goes to the next BATCHES of FILES files in equal parts
    fetch       receive a Fetch v11, sendfile the requested batches of a file after a header
    ping        receive a frame, answer 64 bytes
    ping_synced receive a frame, write it to a file, fdatasync, answer 64 bytes; nothing at the same time
    tls_produce, tls_fetch
                the same over TLS with the key store STORE; the file is read instead of sendfile

The same client code requests answers of the same size from them and from the broker. Like the broker,
each runs in its own process: `python -m bench.base.null_broker MODE PORT FILE [FILES BATCHES | STORE]`.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue

from bench.base.raw_protocol import asked_of_fetch, fetch_answer_head
from protocol.records.batch_header import HEADER_BYTES, read_header
from protocol.records.batch_scan import crc32c

SIZE = struct.Struct(">i")
PRODUCE_ANSWER = SIZE.pack(60) + bytes(60)
TOPIC = "null"
FRAME_BYTES_MAX = 4 << 20
SYNC_THREADS = 16
PIECE_BYTES = 128 << 10


def read_exactly(connection: socket.socket, view: memoryview) -> bool:
    """Fill `view`. Returns False when the client has closed."""
    received = 0
    while received < len(view):
        count = connection.recv_into(view[received:])
        if count == 0:
            return False
        received += count
    return True


class Frames:
    """Receives one frame after the other into the same memory."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(FRAME_BYTES_MAX))

    def next(self) -> memoryview | None:
        """Returns the next frame without its size, valid until the next call; None at the end."""
        if not read_exactly(self._connection, self._buffer[: SIZE.size]):
            return None
        (size,) = SIZE.unpack_from(self._buffer)
        frame = self._buffer[:size]
        return frame if read_exactly(self._connection, frame) else None


def serve_produce(connection: socket.socket, path: Path) -> None:
    """Write every frame to the file, and answer."""
    frames = Frames(connection)
    with path.open("wb", buffering=0) as target:
        while (frame := frames.next()) is not None:
            crc32c(frame)
            target.write(frame)
            connection.sendall(PRODUCE_ANSWER)
    path.unlink()


def serve_synced(
    connection: socket.socket, path: Path, files: str = "1", batches: str = "1"
) -> None:
    """Serve a minimal group commit: one thread writes, another syncs the written data and answers."""
    frames, count = Frames(connection), int(files)
    written: SimpleQueue[list[int] | None] = SimpleQueue()
    with ExitStack() as stack:
        targets = [
            stack.enter_context(Path(f"{path}.{number}").open("wb", buffering=0)).fileno()
            for number in range(count)
        ]
        syncer = threading.Thread(target=sync_and_answer, args=(connection, written))
        syncer.start()
        turn = itertools.cycle(targets)
        while (frame := frames.next()) is not None:
            crc32c(frame)
            touched = [next(turn) for _ in range(int(batches))]
            part = len(frame) // len(touched)
            for number, target in enumerate(touched):
                os.write(target, frame[number * part : (number + 1) * part])
            written.put(touched)
        written.put(None)
        syncer.join()
    # Like a deleted topic, so that each side leaves the page cache to the other.
    for number in range(count):
        Path(f"{path}.{number}").unlink()


def sync_and_answer(connection: socket.socket, written: SimpleQueue[list[int] | None]) -> None:
    """Sync everything written so far at once, then answer all of it."""
    with ThreadPoolExecutor(SYNC_THREADS) as threads:
        while (touched := written.get()) is not None:
            dirty, answers = set(touched), 1
            while not written.empty() and (more := written.get()) is not None:
                dirty.update(more)
                answers += 1
            if len(dirty) == 1:
                os.fdatasync(dirty.pop())
            else:
                list(threads.map(os.fdatasync, dirty))
            connection.sendall(PRODUCE_ANSWER * answers)


def serve_fetch(connection: socket.socket, path: Path) -> None:
    """Serve a file of batches that all have the same size and number of records."""

    def send(source: int, head: bytes, position: int, size: int) -> None:
        connection.sendall(head, socket.MSG_MORE)
        send_region(connection, source, position, size)

    answer_fetches(connection, path, send)


def answer_fetches(
    connection: socket.socket, path: Path, send: Callable[[int, bytes, int, int], None]
) -> None:
    """Answer each request by `send`, with the file, the answer's head, and the region after it."""
    frames = Frames(connection)
    with path.open("rb", buffering=0) as source:
        header = read_header(source.read(HEADER_BYTES))
        end = os.fstat(source.fileno()).st_size
        while (frame := frames.next()) is not None:
            offset, bytes_max = asked_of_fetch(frame)
            position = offset // header.record_count * header.size_bytes
            size = min(bytes_max // header.size_bytes * header.size_bytes, end - position)
            send(source.fileno(), fetch_answer_head(TOPIC, size), position, size)


def send_region(connection: socket.socket, source: int, position: int, size: int) -> None:
    end = position + size
    while position < end:
        position += os.sendfile(connection.fileno(), source, position, end - position)


def serve_ping(connection: socket.socket, _: Path) -> None:
    frames = Frames(connection)
    while frames.next() is not None:
        connection.sendall(PRODUCE_ANSWER)


def serve_ping_synced(connection: socket.socket, path: Path) -> None:
    frames = Frames(connection)
    with path.open("wb", buffering=0) as target:
        while (frame := frames.next()) is not None:
            target.write(frame)
            os.fdatasync(target.fileno())
            connection.sendall(PRODUCE_ANSWER)
    path.unlink()


def with_tls(connection: socket.socket, key_store: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_store)
    return context.wrap_socket(connection, server_side=True)


def serve_tls_produce(connection: socket.socket, path: Path, key_store: str) -> None:
    with with_tls(connection, key_store) as tls:
        serve_produce(tls, path)


def serve_tls_fetch(connection: socket.socket, path: Path, key_store: str) -> None:
    piece = memoryview(bytearray(PIECE_BYTES))
    with with_tls(connection, key_store) as tls:

        def send(source: int, head: bytes, position: int, size: int) -> None:
            tls.sendall(head)
            end = position + size
            while position < end:
                count = os.preadv(source, [piece[: end - position]], position)
                tls.sendall(piece[:count])
                position += count

        answer_fetches(tls, path, send)


MODES: dict[str, Callable[..., None]] = {
    "produce": serve_produce,
    "synced": serve_synced,
    "fetch": serve_fetch,
    "ping": serve_ping,
    "ping_synced": serve_ping_synced,
    "tls_produce": serve_tls_produce,
    "tls_fetch": serve_tls_fetch,
}


def main(mode: str, port: str, path: str, *arguments: str) -> None:
    """Serve one connection after another until killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A connection that only looks whether the server listens has no handshake.
            with connection, suppress(ssl.SSLError, ConnectionError):
                MODES[mode](connection, Path(path), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])

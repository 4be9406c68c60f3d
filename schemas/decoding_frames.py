"""What the broker and the process that decodes send each other. Pure, except for the socket.

Each message is its size in 4 bytes, big endian, and then MessagePack:

    request   the schema and the value
    answer    its JSON, or a code and a sentence
"""

from __future__ import annotations

import socket
import struct

import msgspec

from schemas.schema import Schema

FRAME_BYTES_MAX = 256 << 20
"""More than any record and any schema: only a sign that the two have lost step."""

_SIZE = struct.Struct(">I")


class Request(msgspec.Struct, frozen=True):
    """A value to decode."""

    schema: Schema
    data: bytes
    """The value with its header."""


class Answer(msgspec.Struct, frozen=True):
    """What came of it."""

    json: bytes = b""
    code: str = ""
    """Empty if it was decoded."""
    reason: str = ""


def send(peer: socket.socket, message: Request | Answer) -> None:
    """Send a message. Raises OSError."""
    data = msgspec.msgpack.encode(message)
    peer.sendall(_SIZE.pack(len(data)))
    peer.sendall(data)


def receive(peer: socket.socket) -> bytes:
    """Returns the bytes of the next message. Raises OSError, EOFError."""
    (size,) = _SIZE.unpack(_exactly(peer, _SIZE.size))
    if size > FRAME_BYTES_MAX:
        raise OSError(f"a frame of {size} bytes")
    return _exactly(peer, size)


def _exactly(peer: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view, at = memoryview(buffer), 0
    while at < size:
        count = peer.recv_into(view[at:])
        if count == 0:
            raise EOFError
        at += count
    return bytes(buffer)

"""Requests and answers by the broker's own message definitions, where only the wait is measured.

Building a frame and decoding an answer are separate steps for that.
"""

from __future__ import annotations

from typing import TypeVar

from bench.base.raw_protocol import framed
from protocol.wire.decode import decode
from protocol.wire.encode import encode
from protocol.wire.schema import Message

M = TypeVar("M", bound=Message)

CORRELATION_ID_BYTES = 4
NO_TAGGED_FIELDS = b"\x00"
"""The end of the header in flexible versions."""


def frame_of(request: Message, version: int) -> bytes:
    """Returns the bytes to send."""
    head = NO_TAGGED_FIELDS if version >= request.flexible_since else b""
    body = b"".join(map(_bytes_of, encode(request, version, bytearray(head))))
    return framed(request.api_key, version, 1, body)


def answer_in(frame: memoryview, response_type: type[M], version: int) -> M:
    """Returns the answer in a received frame."""
    is_flexible = version >= response_type.flexible_since
    return decode(response_type, version, frame, CORRELATION_ID_BYTES + is_flexible)


def _bytes_of(part: object) -> bytes:
    # Regions of files occur in responses only.
    assert isinstance(part, bytes | bytearray | memoryview)
    return bytes(part)

"""What a serializer of Confluent puts before a value. Pure.

    0        magic byte: 0
    1 to 4   id of the schema, big endian
    5        Protobuf only: which message of the file the value is, as zigzag varints: how many indexes
             follow, then the index of the message, of the message inside it, and so on. A single 0 is
             short for 1 0, the first message.
    then     the value

Source: Confluent, Schema Registry's "Wire format"; MessageIndexes.java.
"""

from __future__ import annotations

import struct

from schemas.outcomes import BadValue

MAGIC = 0
HEADER_BYTES = 5
NESTED_MAX = 32
"""Messages are nested less deeply than that: protoc refuses more."""

_ID = struct.Struct(">i")
_VARINT_BYTES_MAX = 5


def schema_id_of(data: bytes) -> int | None:
    """Returns the id of the schema that a value names; None if it has no such header."""
    if len(data) < HEADER_BYTES or data[0] != MAGIC:
        return None
    (found,) = _ID.unpack_from(data, 1)
    # A number in Java, which is never negative.
    return int(found) if found >= 0 else None


def message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the indexes that lead to a message, and where its bytes begin. Raises BadValue."""
    count, at = _zigzag(data, HEADER_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= NESTED_MAX:
        raise BadValue(f"its header names a message that is nested {count} deep")
    path = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        path.append(index)
    return tuple(path), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a position, and the position after it. Raises BadValue."""
    found = 0
    for length, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * length
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + length + 1
    raise BadValue("its header ends before it says which message it is")

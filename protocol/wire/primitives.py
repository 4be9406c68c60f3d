"""The variable-length parts of Kafka's wire format; fixed-size ones are `struct` formats.

    unsigned varint   7 bits a byte, least significant first, the top bit says that more follow;
                      at most 5 bytes and 32 bits
    nullable string   length: int16 (-1 is null) | UTF-8 bytes
    tagged fields     count: unsigned varint | count x (tag: unsigned varint |
                      size: unsigned varint | byte[size]); tags strictly increase

Readers take a buffer and a position and return the value and the position after it. They raise
`DecodeError` and nothing else, whatever the bytes are. Writers extend a bytearray.

Source: https://kafka.apache.org/protocol#protocol_types, KIP-482 (tagged fields).
"""

from __future__ import annotations

import struct
import uuid

from protocol.wire.errors import DecodeError

ZERO_UUID = uuid.UUID(int=0)
"""Kafka's "no topic id": a legal value on the wire, but never a topic's id."""

STRING_BYTES_MAX = 0x7FFF
"""Bound on a string's UTF-8 bytes, also in the compact encoding."""

ELEMENTS_MAX = 2_000_000
"""Bound on array elements and tagged fields in one message, over all levels.

The bytes after a count also bound the count. This constant bounds the memory that one frame can take,
because an element of two bytes becomes an object of a hundred or more. It does not bound the time: the
broker decodes, executes and encodes a message of many elements in steps.
"""

TAGS_MAX = 1_000
"""Bound on tagged fields in one section. Kafka's largest has six; skipping this many takes 0.5 ms."""

_INT16 = struct.Struct(">h")


def read_unsigned_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint. Longer encodings than necessary are legal, as in Kafka."""
    value = 0
    try:
        for shift in (0, 7, 14, 21, 28):
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise DecodeError("varint of more than 5 bytes")
    except IndexError:
        raise DecodeError("truncated in a varint") from None
    if value > 0xFFFFFFFF:
        raise DecodeError("varint of more than 32 bits")
    return value, position


def write_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_nullable_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    """Read a string with an int16 length; None for length -1."""
    start = position + _INT16.size
    if start > len(buffer):
        raise DecodeError("truncated in a string's length")
    (length,) = _INT16.unpack_from(buffer, position)
    if length < 0:
        if length != -1:
            raise DecodeError(f"string of {length} bytes")
        return None, start
    end = start + length
    if end > len(buffer):
        raise DecodeError("truncated in a string")
    try:
        return str(buffer[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"string is not UTF-8: {error.reason}") from error


def skip_tagged_fields(buffer: memoryview, position: int, budget: int) -> tuple[int, int]:
    """Skip a section of tagged fields, all of which are unknown.

    Returns the position after it, and the rest of the message's `budget` of elements.
    """
    count, position = read_unsigned_varint(buffer, position)
    budget = take_tags(budget, count, len(buffer) - position)
    tag = -1
    for _ in range(count):
        tag, _, position = read_tag(buffer, position, tag)
    return position, budget


def read_tag(buffer: memoryview, position: int, previous: int) -> tuple[int, int, int]:
    """Read one tagged field's frame. Returns its tag, and the start and end of its value."""
    tag, position = read_unsigned_varint(buffer, position)
    if tag <= previous:
        raise DecodeError(f"tag {tag} after tag {previous}")
    size, position = read_unsigned_varint(buffer, position)
    end = position + size
    if end > len(buffer):
        raise DecodeError(f"truncated in tagged field {tag}")
    return tag, position, end


def take_elements(budget: int, count: int, size_min: int, remaining: int) -> int:
    """Returns the rest of `budget` after `count` elements of at least `size_min` bytes each.

    Raises:
        DecodeError: the count is negative, `remaining` bytes cannot hold that many elements, or the
            message has more than `ELEMENTS_MAX`. Checked before anything is allocated.
    """
    if count < 0:
        raise DecodeError(f"array of {count} elements")
    if count * size_min > remaining:
        raise DecodeError(f"array of {count} elements in {remaining} bytes")
    if count > budget:
        raise DecodeError(f"more than {ELEMENTS_MAX} elements in one message")
    return budget - count


def take_tags(budget: int, count: int, remaining: int) -> int:
    """Returns the rest of `budget` after a section of `count` tagged fields.

    Raises:
        DecodeError: `remaining` bytes cannot hold that many, or they exceed the bound of a section.
    """
    if count > TAGS_MAX:
        raise DecodeError(f"{count} tagged fields in one section")
    return take_elements(budget, count, 2, remaining)

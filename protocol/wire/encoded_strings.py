"""A large set of strings that was encoded in steps, so that a message with it is encoded in one go.

A record of a coordinator is appended in the same turn of the event loop in which it is made, so it
cannot be encoded in steps itself.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from protocol.wire.errors import EncodeError
from protocol.wire.primitives import STRING_BYTES_MAX, write_unsigned_varint

STEP_ELEMENTS = 512
"""Elements between two pauses: about 0.2 ms."""


class EncodedStrings(frozenset[str]):
    """A set of strings and its encoding. As a field's array of strings it is copied into the message.

    Set operations return plain sets, which are encoded element by element.
    """

    __slots__ = ("compact",)

    compact: bytearray
    """The elements in the compact encoding (KIP-482), without their number."""


def encode_strings_in_steps(strings: Mapping[str, None]) -> Generator[None, None, EncodedStrings]:
    """Encode the keys of a mapping in their order, with a pause after each step. Returns the set.

    Raises:
        EncodeError: a string is longer than `STRING_BYTES_MAX`.
    """
    out = bytearray()
    left = STEP_ELEMENTS
    for string in strings:
        data = string.encode()
        size = len(data)
        if size > STRING_BYTES_MAX:
            raise EncodeError(f"string of {size} bytes")
        write_unsigned_varint(out, size + 1)
        out += data
        left -= 1
        if left <= 0:
            yield
            left = STEP_ELEMENTS
    # The set itself is built in one go: 2 ms for 100,000 strings.
    yield
    encoded = EncodedStrings(strings)
    encoded.compact = out
    yield
    return encoded

"""Records as tests exchange them with clients, and their encoding in a pipe.

In a pipe, a byte string is an int32 size (-1: null) and its bytes, big-endian. A producer receives
`key, value`; a consumer sends `topic, partition int32, offset int64, key, value`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import IO, TypeAlias

KeyedRecord: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""
ConsumedRecord: TypeAlias = tuple[str, int, int, bytes | None, bytes | None]
"""Topic, partition, offset, key and value: a plain tuple, since a test reads millions of them."""

SIZE = struct.Struct(">i")
PLACE = struct.Struct(">iq")


def pack_records(records: Iterable[KeyedRecord]) -> bytes:
    return b"".join(pack_bytes(key) + pack_bytes(value) for key, value in records)


def pack_bytes(data: bytes | None) -> bytes:
    return SIZE.pack(-1) if data is None else SIZE.pack(len(data)) + data


def unpack_records(stream: IO[bytes]) -> Iterator[ConsumedRecord]:
    """Yields records until the end of the stream, which must be the end of a record."""
    while first := stream.read(SIZE.size):
        topic = stream.read(*SIZE.unpack(first)).decode()
        partition, offset = PLACE.unpack(stream.read(PLACE.size))
        key = unpack_bytes(stream)
        yield topic, partition, offset, key, unpack_bytes(stream)


def unpack_bytes(stream: IO[bytes]) -> bytes | None:
    (size,) = SIZE.unpack(stream.read(SIZE.size))
    return None if size < 0 else stream.read(size)

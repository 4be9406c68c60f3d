"""Walks the headers of the record batches in a segment file, a window of bytes at a time.

A read finds its position through the offset index and then looks at headers only: those of an index
interval, seldom more. The bytes were validated when they were appended or recovered.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from protocol.records.batch_header import CONTROL, HEADER_BYTES, LENGTH_AT, LENGTH_OVERHEAD
from protocol.wire.numbers import Offset, Position
from storage.batches.cached_reads import Reads
from storage.files.errors import CorruptLog
from storage.files.files import File

WINDOW_BYTES = 8 << 10

PLACE = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # batch length
    "9x"  # leader epoch, magic, CRC
    "h"  # attributes
    "i"  # last offset delta
    "8x"  # base timestamp
    "q"  # largest timestamp
    "14x"  # producer
    "i"  # record count
)
assert PLACE.size == HEADER_BYTES


class BatchPlace(NamedTuple):
    """Position, offsets and header fields of a batch in its segment file.

    A tuple, because a walk makes one for each batch, and a frozen dataclass takes three times as long.
    """

    position: Position
    size: int
    base_offset: Offset
    last_offset: Offset
    record_count: int
    max_timestamp: int
    attributes: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_dense(self) -> bool:
        """Whether none of its records is missing."""
        return self.record_count == self.last_offset - self.base_offset + 1

    @property
    def end_position(self) -> int:
        return self.position + self.size


def claimed_bytes(batch: memoryview) -> int:
    """Returns a batch's size by its length field; the size of a header if even that field is cut off."""
    if len(batch) < LENGTH_AT + 4:
        return HEADER_BYTES
    length = int.from_bytes(batch[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
    return max(length + LENGTH_OVERHEAD, HEADER_BYTES)


def last_offset_in(data: bytes | bytearray) -> Offset | None:
    """Returns the last offset of the batch whose header begins the data; None without a whole header."""
    if len(data) < HEADER_BYTES:
        return None
    base_offset, _, _, last_delta, _, _ = PLACE.unpack_from(data)
    return Offset(base_offset + last_delta)


def walk_batches(file: File | Reads, position: Position, end: int) -> Iterator[BatchPlace]:
    """Yield the batches of [position, end); both must be batch boundaries.

    Raises:
        CorruptLog: a header holds impossible values.
        NotCached: the file is read without waiting, and a header is not in memory.
    """
    window: bytes | bytearray = b""
    window_start = position
    while position < end:
        at = position - window_start
        if at + HEADER_BYTES > len(window):
            window, window_start, at = file.read_at(position, WINDOW_BYTES), position, 0
        if at + HEADER_BYTES > len(window):
            raise CorruptLog(file.path, position, "the file ends inside a batch header")
        base_offset, length, attributes, last_delta, youngest, count = PLACE.unpack_from(window, at)
        size = length + LENGTH_OVERHEAD
        next_position: Position = size + position
        if size < HEADER_BYTES or last_delta < 0 or next_position > end:
            raise CorruptLog(file.path, position, f"no batch of {size} bytes can be here")
        last_offset = base_offset + last_delta
        yield BatchPlace(position, size, base_offset, last_offset, count, youngest, attributes)
        position = next_position

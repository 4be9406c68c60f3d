"""Batches that no producer should send: one for each kind of error, in every codec.

Each has a correct CRC (except the one whose CRC is the error), so that only the error itself can be the
reason for a refusal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.records.batch_scan import crc32c
from protocol.records.compression import Codec, compress
from protocol.records.record import Record, write_record
from protocol.records.record_batch import build_batch

GARBAGE = bytes(range(7, 250, 3)) * 3
HEADER_BYTES = 61
LENGTH_AT, CRC_AT, CRC_FROM = 8, 17, 21
LAST_OFFSET_DELTA_AT, RECORD_COUNT_AT = 23, 57
COUNT_MAX = 2**31 - 1


def sealed(batch: bytearray) -> bytearray:
    """Returns the batch with a correct length and CRC for its bytes."""
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def raw_batch(
    packed: bytes | bytearray | memoryview, codec: Codec, *, count: int = 3, timestamp: int
) -> bytearray:
    """Returns a batch over these bytes whose header says `count` records."""
    record = Record(offset=0, timestamp=timestamp, key=b"k", value=b"v")
    batch = build_batch([record])[:HEADER_BYTES] + bytes(packed)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, count - 1)
    struct.pack_into(">i", batch, RECORD_COUNT_AT, count)
    return sealed(batch)


def plain_records(deltas: Sequence[int], *, timestamp: int) -> bytearray:
    """Returns records with these offset deltas."""
    plain = bytearray()
    for delta in deltas:
        record = Record(offset=delta, timestamp=timestamp, key=b"key", value=b"value" * 20)
        write_record(plain, record, base_offset=0, base_timestamp=timestamp)
    return plain


def with_deltas(*deltas: int) -> Callable[[Codec, int], bytearray]:
    """Returns a builder of three records with these offset deltas."""
    return lambda codec, timestamp: raw_batch(
        compress(codec, plain_records(deltas, timestamp=timestamp)), codec, timestamp=timestamp
    )


def with_count(count: int) -> Callable[[Codec, int], bytearray]:
    """Returns a builder of three records in a batch whose header says another number."""
    return lambda codec, timestamp: raw_batch(
        compress(codec, plain_records((0, 1, 2), timestamp=timestamp)), codec,
        count=count, timestamp=timestamp,
    )  # fmt: skip


def with_bytes_behind(extra: bytes) -> Callable[[Codec, int], bytearray]:
    """Returns a builder that adds bytes after the last record, inside the compressed data."""
    return lambda codec, timestamp: raw_batch(
        compress(codec, plain_records((0, 1, 2), timestamp=timestamp) + extra), codec,
        timestamp=timestamp,
    )  # fmt: skip


def with_changed_byte(position: int, value: int) -> Callable[[Codec, int], bytearray]:
    """Returns a builder that changes one byte of the first record."""

    def build(codec: Codec, timestamp: int) -> bytearray:
        plain = plain_records((0, 1, 2), timestamp=timestamp)
        plain[position] = value
        return raw_batch(compress(codec, plain), codec, timestamp=timestamp)

    return build


def garbage(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch of bytes that no codec and no encoder of records produces."""
    return raw_batch(GARBAGE, codec, timestamp=timestamp)


def cut(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch whose records lack their last bytes."""
    packed = bytes(compress(codec, plain_records((0, 1, 2), timestamp=timestamp)))
    return raw_batch(packed[:-3], codec, timestamp=timestamp)


def bytes_behind_what_is_compressed(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch with extra bytes after the compressed data."""
    packed = bytes(compress(codec, plain_records((0, 1, 2), timestamp=timestamp)))
    return raw_batch(packed + GARBAGE[:9], codec, timestamp=timestamp)


def nothing(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch without bytes after the header, where three records should be."""
    return raw_batch(b"", codec, timestamp=timestamp)


def good(codec: Codec, timestamp: int) -> bytearray:
    """Build a valid batch."""
    return with_deltas(0, 1, 2)(codec, timestamp)


def length_beyond_the_batch(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch whose length field is ten bytes too large."""
    batch = good(codec, timestamp)
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12 + 10)
    return batch


def length_within_the_batch(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch whose length field is too small."""
    batch = good(codec, timestamp)
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12 - 1)
    return batch


def wrong_crc(codec: Codec, timestamp: int) -> bytearray:
    """Build a batch with a flipped bit after the CRC."""
    batch = good(codec, timestamp)
    batch[-1] ^= 1
    return batch


@dataclass(frozen=True, slots=True)
class Malformed:
    """One kind of malformed batch."""

    name: str
    build: Callable[[Codec, int], bytearray]
    """Builds the batch for a codec, with records of this timestamp."""


MALFORMED = (
    Malformed("count_of_2_31_less_1", with_count(COUNT_MAX)),
    Malformed("one_record_too_few", with_count(4)),
    Malformed("one_record_too_many", with_count(2)),
    Malformed("no_record_counted", with_count(0)),
    Malformed("bytes_behind_the_records", with_bytes_behind(bytes(5))),
    Malformed("one_byte_behind_the_records", with_bytes_behind(b"\0")),
    Malformed("garbage", garbage),
    Malformed("cut", cut),
    Malformed("bytes_behind_what_is_compressed", bytes_behind_what_is_compressed),
    Malformed("nothing", nothing),
    Malformed("offset_deltas_repeat", with_deltas(0, 1, 1)),
    Malformed("offset_deltas_fall", with_deltas(0, 2, 1)),
    Malformed("offset_deltas_leave_a_gap", with_deltas(0, 2, 3)),
    Malformed("offset_deltas_begin_at_one", with_deltas(1, 2, 3)),
    Malformed("offset_deltas_are_negative", with_deltas(-1, 0, 1)),
    Malformed("record_length_beyond_the_batch", with_changed_byte(1, 0x7F)),
    Malformed("record_length_is_negative", with_changed_byte(0, 0x01)),
    Malformed("key_length_beyond_the_record", with_changed_byte(5, 0x7E)),
    Malformed("key_length_is_minus_two", with_changed_byte(5, 0x03)),
    Malformed("length_beyond_the_batch", length_beyond_the_batch),
    Malformed("length_within_the_batch", length_within_the_batch),
    Malformed("wrong_crc", wrong_crc),
)

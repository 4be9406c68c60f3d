"""Store a batch with another codec than its producer chose (compression.type). Pure.

The records stay as they are, byte for byte, and with them offsets, timestamps, keys and headers. The
batch header changes in three fields: its length, the codec in its attributes, and the CRC.
Source: Apache Kafka, LogValidator.java, which rebuilds the batch record by record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from protocol.batch_scan import crc32c
from protocol.compression import Buffer, Codec, compress

HEADER_BYTES = 61
CRC_FROM = 21
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_LENGTH_OVERHEAD = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CODEC_AT, _CODEC_MASK = 22, 0x07  # The low byte of the attributes.


@dataclass(frozen=True, slots=True)
class StoredCodec:
    """What a topic's batches are stored with."""

    codec: Codec
    level: int | None = None
    """The codec's own level; None is what Kafka's clients use by default."""


def recompress(batch: memoryview, records: Buffer, wanted: StoredCodec) -> bytearray:
    """A copy of `batch`, whose decompressed records these are, that has them compressed as wanted."""
    packed = compress(wanted.codec, records, level=wanted.level)
    copy = bytearray(batch[:HEADER_BYTES])
    copy[_CODEC_AT] = copy[_CODEC_AT] & ~_CODEC_MASK | wanted.codec
    copy += packed
    _LENGTH.pack_into(copy, _LENGTH_AT, len(copy) - _LENGTH_OVERHEAD)
    seal(copy)
    return copy


def seal(batch: bytearray | memoryview) -> None:
    """Make a changed batch's CRC right again, in place."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, _CRC_AT, crc32c(view[CRC_FROM:]))

"""Compress a batch with another codec than its producer chose (compression.type). Pure.

The records stay the same, byte for byte, with their offsets, timestamps, keys and headers. Three fields
of the batch header change: the length, the codec in the attributes, and the CRC.
Source: Apache Kafka, LogValidator.java, which rebuilds the batch record by record.
"""

from __future__ import annotations

import struct

from protocol.records.batch_scan import crc32c
from protocol.records.compression import Buffer, compress
from storage.formats.stored_codec import StoredCodec

HEADER_BYTES = 61
CRC_FROM = 21
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_LENGTH_OVERHEAD = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CODEC_AT, _CODEC_MASK = 22, 0x07  # The low byte of the attributes.


def recompress(batch: memoryview, records: Buffer, wanted: StoredCodec) -> bytearray:
    """Returns a copy of `batch` with `records`, its decompressed records, compressed with `wanted`."""
    packed = compress(wanted.codec, records, level=wanted.level)
    copy = bytearray(batch[:HEADER_BYTES])
    copy[_CODEC_AT] = copy[_CODEC_AT] & ~_CODEC_MASK | wanted.codec
    copy += packed
    _LENGTH.pack_into(copy, _LENGTH_AT, len(copy) - _LENGTH_OVERHEAD)
    seal(copy)
    return copy


def seal(batch: bytearray | memoryview) -> None:
    """Update the CRC of a changed batch, in place."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, _CRC_AT, crc32c(view[CRC_FROM:]))

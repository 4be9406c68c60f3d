"""Compress a batch with another codec than its producer chose (compression.type). Pure.

The records stay the same, byte for byte, with their offsets, timestamps, keys and headers. Three fields
of the batch header change: the length, the codec in the attributes, and the CRC.
Source: Apache Kafka, LogValidator.java, which rebuilds the batch record by record.
"""

from __future__ import annotations

import struct

from protocol.records.batch_header import (
    CODEC_MASK,
    FLAGS_AT,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    seal,
)
from protocol.records.compression import Buffer, compress
from storage.formats.stored_codec import StoredCodec

_LENGTH = struct.Struct(">i")


def recompress(batch: memoryview, records: Buffer, wanted: StoredCodec) -> bytearray:
    """Returns a copy of `batch` with `records`, its decompressed records, compressed with `wanted`."""
    packed = compress(wanted.codec, records, level=wanted.level)
    copy = bytearray(batch[:HEADER_BYTES])
    copy[FLAGS_AT] = copy[FLAGS_AT] & ~CODEC_MASK | wanted.codec
    copy += packed
    _LENGTH.pack_into(copy, LENGTH_AT, len(copy) - LENGTH_OVERHEAD)
    seal(copy)
    return copy

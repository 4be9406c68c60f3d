"""The codecs of a batch's records, and what compressing and inflating share."""

from __future__ import annotations

import enum
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(enum.IntEnum):
    """Compression of a batch, bits 0-2 of its attributes. On disk: values never change."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_WBITS = 31
"""Selects zlib's format of RFC 1952 with the largest window."""

SNAPPY_MAGIC = b"\x82SNAPPY\x00"
SNAPPY_VERSION = (1).to_bytes(4)
SNAPPY_HEADER = SNAPPY_MAGIC + SNAPPY_VERSION + SNAPPY_VERSION
"""Starts a stream in the Java client's framing."""

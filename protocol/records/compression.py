"""Compression of a batch's records: one unit from the end of the batch header to the batch's end.

    gzip     RFC 1952, one member or more
    snappy   \\x82SNAPPY\\x00 | version int32 (1) | compatible version int32 (1)
             | blocks of: size int32 | raw snappy block        the Java client, kafka-python
             or one raw snappy block                            librdkafka
    lz4      LZ4 frame format 1.6, one frame or more. The Java client refuses blocks that depend
             on their predecessors, so ours never do
    zstd     RFC 8878, one frame or more, mostly without a content size

Integers are big-endian. A peer's bytes never make us allocate more than the caller's bound: records
are inflated in windows (`inflate.py`), and inflating stops when the windows exceed the bound. The codecs
release the GIL while they work, and are imported when a batch first needs them.

Source: Apache Kafka, record/internal/CompressionType.java, Lz4BlockInputStream.java;
snappy-java, SnappyInputStream.java.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from protocol.records.codec import GZIP_WBITS, SNAPPY_HEADER
from protocol.records.codec import Buffer as Buffer
from protocol.records.codec import Codec as Codec
from protocol.records.inflate import inflated

_SNAPPY_BLOCK_BYTES = 32 * 1024  # As the Java client's.

GZIP_LEVEL = 6
LZ4_LEVEL = 9
LZ4_FAST = 0
"""The library's level for `LZ4_LEVEL`."""
ZSTD_LEVEL = 3


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> Buffer:
    """Compress records.

    `Codec.NONE` returns `data` itself. The result may be a view of memory that the codec owns.

    Args:
        level: for gzip, lz4 or zstd, within the bounds of Kafka's compression.<codec>.level; None is
            the default of Kafka's clients. The other codecs ignore it.
    """
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Buffer, *, bytes_max: int) -> Buffer:
    """Decompress records into at most `bytes_max` bytes.

    `Codec.NONE` returns `data` itself, of any size: nothing inflates.

    Raises:
        CorruptBatch: `data` is not valid for the codec, is cut off or has surplus bytes.
        DecompressionTooLarge: the records are larger than `bytes_max`. A damaged batch may also
            raise this, if the damage lies beyond the bound.
    """
    if codec is Codec.NONE:
        return data
    records = bytearray()
    for window in inflated(codec, data, bytes_max=bytes_max, has_parts_max=False):
        records += window
    return records


def _compress_none(data: Buffer, level: int | None) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int | None) -> Buffer:
    return zlib.compress(data, GZIP_LEVEL if level is None else level, wbits=GZIP_WBITS)


def _compress_snappy(data: Buffer, level: int | None) -> Buffer:
    from cramjam import snappy

    view = memoryview(data)
    framed = bytearray(SNAPPY_HEADER)
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = memoryview(snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
        framed += len(block).to_bytes(4)
        framed += block
    return framed


def _compress_lz4(data: Buffer, level: int | None) -> Buffer:
    """Kafka's default level selects the fast compressor."""
    from lz4.frame import BLOCKSIZE_MAX64KB, compress

    packed: bytes = compress(
        data,
        compression_level=LZ4_FAST if level in (None, LZ4_LEVEL) else level,
        block_size=BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _compress_zstd(data: Buffer, level: int | None) -> Buffer:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compress(data)


_COMPRESS: dict[Codec, Callable[[Buffer, int | None], Buffer]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

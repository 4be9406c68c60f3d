"""Compression of a batch's records: one unit from the end of the batch header to the batch's end.

    gzip     RFC 1952, one member or more
    snappy   \\x82SNAPPY\\x00 | version int32 (1) | compatible version int32 (1)
             | blocks of: size int32 | raw snappy block        the Java client, kafka-python
             or one raw snappy block                            librdkafka
    lz4      LZ4 frame format 1.6, one frame or more. The Java client refuses blocks that depend
             on their predecessors, so ours never do
    zstd     RFC 8878, one frame or more, mostly without a content size

Integers are big-endian. A peer's bytes never make us allocate more than the caller's bound:
output goes to a buffer that grows up to that bound, and inflating stops when it is full. The
codecs release the GIL while they work, and are imported when a batch first needs them.

Source: Apache Kafka, record/internal/CompressionType.java, Lz4BlockInputStream.java;
snappy-java, SnappyInputStream.java.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

from protocol.wire.errors import CorruptBatch, DecompressionTooLarge

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(enum.IntEnum):
    """Compression of a batch, bits 0-2 of its attributes. On disk: values never change."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_LEVEL = 6
LZ4_LEVEL = 9
LZ4_FAST = 0
"""The library's level for `LZ4_LEVEL`."""
ZSTD_LEVEL = 3

GZIP_WBITS = 31
"""Selects the format of RFC 1952 with the largest window."""


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

    `Codec.NONE` returns `data` itself, whatever its size: nothing inflates.

    Raises:
        CorruptBatch: `data` is not valid for the codec, is cut off or has surplus bytes.
        DecompressionTooLarge: the records are larger than `bytes_max`. A damaged batch may also
            raise this, if the damage lies beyond the bound.
    """
    return _DECOMPRESS[codec](data, bytes_max)


def _compress_none(data: Buffer, level: int | None) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int | None) -> Buffer:
    return zlib.compress(data, GZIP_LEVEL if level is None else level, wbits=GZIP_WBITS)


def _compress_snappy(data: Buffer, level: int | None) -> Buffer:
    from cramjam import snappy

    view = memoryview(data)
    framed = bytearray(_SNAPPY_HEADER)
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


def _decompress_none(data: Buffer, bytes_max: int) -> Buffer:
    return data


def _decompress_gzip(data: Buffer, bytes_max: int) -> Buffer:
    from cramjam import gzip

    return _inflate(gzip.decompress_into, data, bytes_max)


def _decompress_lz4(data: Buffer, bytes_max: int) -> Buffer:
    from cramjam import lz4

    return _inflate(lz4.decompress_into, data, bytes_max)


def _decompress_zstd(data: Buffer, bytes_max: int) -> Buffer:
    from cramjam import zstd

    return _inflate(zstd.decompress_into, data, bytes_max)


_FIRST_GUESS_BYTES_MIN = 1 << 16
_FIRST_GUESS_RATIO = 8  # Kafka's records mostly compress to a third or a fifth.
_GROWTH = 4  # Starting again costs at most a third of the last attempt, and growth is rare.
_OUTPUT_IS_FULL = "failed to write whole buffer"


def _inflate(into: Callable[[Buffer, bytearray], int], data: Buffer, bytes_max: int) -> Buffer:
    """Decompress with a codec that does not know the size of its output.

    Sizes in the data itself are not used: they may be absent or wrong.
    """
    import cramjam

    size = min(bytes_max, max(_FIRST_GUESS_BYTES_MIN, _FIRST_GUESS_RATIO * len(data)))
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: into(data, output)]
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_IS_FULL:
                raise CorruptBatch(f"compressed records are damaged: {error}") from error
        if size >= bytes_max:
            raise DecompressionTooLarge(bytes_max)
        size = min(bytes_max, size * _GROWTH)


_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_VERSION = (1).to_bytes(4)
_SNAPPY_HEADER = _SNAPPY_MAGIC + _SNAPPY_VERSION + _SNAPPY_VERSION
_SNAPPY_BLOCK_BYTES = 32 * 1024  # As the Java client's.
_SNAPPY_RATIO_MAX = 32  # A copy of at most 64 bytes takes two bytes or more.


def _decompress_snappy(data: Buffer, bytes_max: int) -> Buffer:
    import cramjam
    from cramjam import snappy

    view = memoryview(data)
    output = bytearray()
    try:
        blocks = [(block, snappy_block_size(block)) for block in snappy_blocks(view)]
        size = sum(block_size for _, block_size in blocks)
        if size > bytes_max:
            raise DecompressionTooLarge(bytes_max)
        output = bytearray(size)
        start = 0
        for block, block_size in blocks:
            # The block announces its length itself; the codec refuses a block with another length.
            snappy.decompress_raw_into(block, memoryview(output)[start : start + block_size])
            start += block_size
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"compressed records are damaged: {error}") from error
    return output


def snappy_block_size(block: memoryview) -> int:
    from cramjam import snappy

    size = snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"snappy block of {len(block)} bytes announces {size} bytes")
    return size


def snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Cut the Java framing into its raw blocks; without framing everything is one block."""
    if view[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        yield view
        return
    position = 0
    while position < len(view):
        # Streams may be concatenated: a header may appear wherever a block may.
        if view[position : position + len(_SNAPPY_MAGIC)] == _SNAPPY_MAGIC:
            position += len(_SNAPPY_HEADER)
            if position > len(view):
                raise CorruptBatch("snappy framing is cut off in its header")
            continue
        start = position + 4
        position = start + int.from_bytes(view[position:start])
        if start > len(view) or position > len(view):
            raise CorruptBatch("snappy framing is cut off in a block")
        yield view[start:position]


_COMPRESS: dict[Codec, Callable[[Buffer, int | None], Buffer]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[Codec, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}

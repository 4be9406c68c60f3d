"""Inflates a batch's records in windows, so that they are never completely in memory.

    gzip, lz4, zstd   windows of at most WINDOW_BYTES
    snappy            one window per block: 32 KiB in the Java client's framing, all records without
                      framing (librdkafka). A block may refer to any earlier byte of it, so it cannot
                      be cut; its inflated size precedes it and is at most 32 times the block's

Data from a client may not be cut into far more parts (members, frames, blocks) than any client makes,
because each part costs time with the interpreter lock held. Within a part the codecs release it. They
are imported when a batch first needs them.

Source: RFC 1952, RFC 8878; `protocol/records/compression.py` for the rest.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from protocol.records.codec import GZIP_WBITS, SNAPPY_HEADER, SNAPPY_MAGIC, Buffer, Codec
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

WINDOW_BYTES = 64 << 10

_INPUT_BYTES = 64 << 10  # The codecs copy the unused rest of a piece.
_PARTS_FREE = 2048  # More zstd blocks than 128 MiB of zeros compress to.
_BYTES_PER_PART = 256
_ROOM_ZEROED_BYTES_MAX = 1 << 20
_SNAPPY_RATIO_MAX = 32  # A copy of at most 64 bytes takes two bytes or more.

_Windows: TypeAlias = Iterator[Buffer]
_Parts: TypeAlias = Iterator[int]


def inflated(codec: Codec, data: Buffer, *, bytes_max: int, has_parts_max: bool = True) -> _Windows:
    """Inflate records; each window is valid until the next one is requested.

    Args:
        has_parts_max: False also accepts any number of parts, for data that is in the log already.

    Raises, during the iteration:
        CorruptBatch: `data` is not valid for the codec, is cut off, has surplus bytes or too many
            parts. Earlier windows may have been yielded already.
        DecompressionTooLarge: the records are larger than `bytes_max`.
    """
    size = 0
    view = memoryview(data)
    parts = _bounded_parts(view) if has_parts_max else count()
    for window in _INFLATE[codec](view, bytes_max, parts):
        size += len(window)
        if size > bytes_max:
            raise DecompressionTooLarge(bytes_max)
        yield window


def _inflate_none(data: memoryview, bytes_max: int, parts: _Parts) -> _Windows:
    for start in range(0, len(data), WINDOW_BYTES):
        yield data[start : start + WINDOW_BYTES]


def _inflate_gzip(data: memoryview, bytes_max: int, parts: _Parts) -> _Windows:
    position = 0
    for _ in parts:
        member = zlib.decompressobj(GZIP_WBITS)
        while not member.eof:
            piece: Buffer = data[position : position + _INPUT_BYTES]
            position += len(piece)
            try:
                window = member.decompress(piece, WINDOW_BYTES)
                is_stuck = not piece and not window
                yield window
                # At a member's end, zlib leaves what follows it in `unconsumed_tail` too.
                while member.unconsumed_tail and not member.eof:
                    yield member.decompress(member.unconsumed_tail, WINDOW_BYTES)
            except zlib.error as error:
                raise _damaged(error) from error
            if is_stuck and not member.eof:
                raise CorruptBatch("compressed records are cut off")
        position -= len(member.unused_data)
        if position == len(data):
            return


def _inflate_lz4(data: memoryview, bytes_max: int, parts: _Parts) -> _Windows:
    # Not LZ4FrameDecompressor: it copies its input, which takes as long as to inflate it.
    import lz4.frame

    position = 0
    for _ in parts:
        frame, is_over = lz4.frame.create_decompression_context(), False
        while not is_over:
            piece = data[position : position + _INPUT_BYTES]
            try:
                window, taken, is_over = lz4.frame.decompress_chunk(
                    frame, piece, max_length=WINDOW_BYTES
                )
            except RuntimeError as error:
                raise _damaged(error) from error
            if not is_over and not taken and not window:
                raise CorruptBatch("compressed records are cut off")
            position += taken
            yield window
        if position == len(data):
            return


def _inflate_zstd(data: memoryview, bytes_max: int, parts: _Parts) -> _Windows:
    from zstandard import ZstdError

    try:
        window_bytes = _check_zstd_frames(data, parts)
    except ZstdError as error:
        raise _damaged(error) from error
    with (
        _zstd_tools(window_bytes) as (decompressor, window),
        memoryview(window) as view,
        decompressor.stream_reader(data, read_across_frames=True) as reader,
    ):
        while True:
            try:
                size = reader.readinto(window)
            except ZstdError as error:
                raise _damaged(error) from error
            if not size:
                return
            yield view[:size]


def _inflate_snappy(data: memoryview, bytes_max: int, parts: _Parts) -> _Windows:
    import cramjam
    from cramjam import snappy

    for _, block in zip(parts, _snappy_blocks(data), strict=False):
        try:
            size = _snappy_block_size(block)
            if size > bytes_max:
                raise DecompressionTooLarge(bytes_max)
            room = _room(size)
            # The block announces its length itself; the codec refuses a block with another length.
            snappy.decompress_raw_into(block, room)
        except cramjam.DecompressionError as error:
            raise _damaged(error) from error
        yield room


def _snappy_block_size(block: memoryview) -> int:
    from cramjam import snappy

    size = snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"snappy block of {len(block)} bytes announces {size} bytes")
    return size


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Cut the Java framing into its raw blocks; without framing everything is one block."""
    if view[: len(SNAPPY_MAGIC)] != SNAPPY_MAGIC:
        yield view
        return
    position = 0
    while position < len(view):
        # Streams may be concatenated: a header may appear wherever a block may.
        if view[position : position + len(SNAPPY_MAGIC)] == SNAPPY_MAGIC:
            position += len(SNAPPY_HEADER)
            if position > len(view):
                raise CorruptBatch("snappy framing is cut off in its header")
            continue
        start = position + 4
        position = start + int.from_bytes(view[position:start])
        if start > len(view) or position > len(view):
            raise CorruptBatch("snappy framing is cut off in a block")
        yield view[start:position]


def _room(size: int) -> Buffer:
    """Returns memory for `size` bytes. Zeroing much memory would hold the interpreter lock."""
    if size <= _ROOM_ZEROED_BYTES_MAX:
        return bytearray(size)
    return memoryview(mmap.mmap(-1, size))


def _bounded_parts(data: memoryview) -> _Parts:
    """Count parts up to a bound, which is far more than any client makes of that many bytes."""
    yield from range(_PARTS_FREE + len(data) // _BYTES_PER_PART)
    raise CorruptBatch(f"compressed records of {len(data)} bytes are cut into too many parts")


def _damaged(error: Exception) -> CorruptBatch:
    return CorruptBatch(f"compressed records are damaged: {error}")


_ZSTD_SKIPPABLE, _ZSTD_SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_ZSTD_RLE = 1
_ZSTD_KEPT_WINDOW_BYTES_MAX = 8 << 20


def _check_zstd_frames(data: memoryview, parts: _Parts) -> int:
    """Check that `data` is one or more whole frames. Returns the largest window that a frame needs.

    At the end of its input the library does not report whether the last frame was complete.

    Raises:
        CorruptBatch, ZstdError: it is not.
    """
    from zstandard import frame_header_size, get_frame_parameters

    position = window_bytes = 0
    while position < len(data) or position == 0:
        next(parts)
        rest = data[position:]
        frame = get_frame_parameters(rest)
        if int.from_bytes(rest[:4], "little") & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(rest[4:8], "little")
            continue
        window_bytes = max(window_bytes, frame.window_size)
        position = _end_of_zstd_blocks(data, position + frame_header_size(rest), parts)
        position += 4 if frame.has_checksum else 0
    if position > len(data):
        raise CorruptBatch("compressed records are cut off")
    return window_bytes


def _end_of_zstd_blocks(data: memoryview, position: int, parts: _Parts) -> int:
    """Returns the end of the frame's blocks at `position`; beyond the data if they are cut off."""
    is_last = False
    while not is_last:
        next(parts)
        block = int.from_bytes(data[position : position + 3], "little")
        if position + 3 > len(data):
            return len(data) + 1
        is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == _ZSTD_RLE else size)
    return position


_ZstdTools: TypeAlias = "tuple[ZstdDecompressor, bytearray]"

_idle_zstd_tools: list[_ZstdTools] = []
"""At most as many as there are threads that inflate at the same time."""


@contextmanager
def _zstd_tools(window_bytes: int) -> Iterator[_ZstdTools]:
    """Lend a decompressor with a buffer for its windows. They are reused: new ones take longer than to
    inflate a usual batch.

    A decompressor keeps the memory for the largest window that it has seen, so a large window gets a
    new one.
    """
    from zstandard import ZstdDecompressor

    is_kept = window_bytes <= _ZSTD_KEPT_WINDOW_BYTES_MAX
    try:
        tools = _idle_zstd_tools.pop() if is_kept else None
    except IndexError:
        tools = None
    if tools is None:
        tools = ZstdDecompressor(), bytearray(WINDOW_BYTES)
    try:
        yield tools
    finally:
        if is_kept:
            _idle_zstd_tools.append(tools)


_INFLATE: dict[Codec, Callable[[memoryview, int, _Parts], _Windows]] = {
    Codec.NONE: _inflate_none,
    Codec.GZIP: _inflate_gzip,
    Codec.SNAPPY: _inflate_snappy,
    Codec.LZ4: _inflate_lz4,
    Codec.ZSTD: _inflate_zstd,
}

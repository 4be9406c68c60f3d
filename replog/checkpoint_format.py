"""The bytes of a snapshot's file, which has Kafka's form of name: `<end>-<term>.checkpoint`.

    file   := header block* footer
    header := magic "KRCP" | format: uint16 = 1 | header size: uint16 | end: int64 | term: int32
              | crc32c of the bytes before: uint32
    block  := size: uint32 > 0 | crc32c: uint32 | (key size: uint32 | value size: uint32 | key | value)*
    footer := 0: uint32 | crc32c of the rest: uint32 | rows: int64 | set digest: 16 bytes
              | XXH3-128 of the header and all blocks: 16 bytes

Rows are in the order of their keys. The bytes depend on the state and on the id only, so copies of a
machine write equal files. A block ends with the row that brings it to 64 KiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from protocol.records.batch_scan import crc32c
from replog.digest import DIGEST_BYTES
from replog.entry import SnapshotId
from replog.machine import Row
from storage.files.errors import DamagedFile, FormatFromTheFuture
from storage.files.files import Buffer

FORMAT = 1
MAGIC = b"KRCP"
BLOCK_BYTES = 64 << 10
_HEADER = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # format
    "H"  # header size
    "q"  # end
    "i"  # term
)
_CRC = struct.Struct(">I")
_BLOCK = struct.Struct(
    ">"
    "I"  # size
    "I"  # crc32c
)
_ROW = struct.Struct(
    ">"
    "I"  # key size
    "I"  # value size
)
_FOOTER = struct.Struct(">q16s16s")  # rows, set digest, checksum
HEADER_BYTES = _HEADER.size + _CRC.size
BLOCK_HEAD_BYTES = _BLOCK.size
FOOTER_BYTES = _BLOCK.size + _FOOTER.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The end of a snapshot's file."""

    rows: int
    digest: int
    checksum: bytes


def encode_header(snapshot: SnapshotId) -> bytes:
    """Returns the bytes with which the file begins."""
    data = _HEADER.pack(MAGIC, FORMAT, HEADER_BYTES, snapshot.end, snapshot.term)
    return data + _CRC.pack(crc32c(data))


def encode_block(rows: Iterable[Row]) -> bytes:
    """Returns one block."""
    parts: list[bytes] = []
    for key, value in rows:
        parts += (_ROW.pack(len(key), len(value)), key, value)
    body = b"".join(parts)
    return _BLOCK.pack(len(body), crc32c(body)) + body


def encoded_rows(block: bytes) -> Iterator[Row]:
    """Yields the rows of a block that `encode_block` has made."""
    return block_rows(block[_BLOCK.size :])


def encode_footer(footer: Footer) -> bytes:
    """Returns the bytes with which the file ends."""
    digest = footer.digest.to_bytes(DIGEST_BYTES, "big")
    body = _FOOTER.pack(footer.rows, digest, footer.checksum)
    return _BLOCK.pack(0, crc32c(body)) + body


def row_bytes(key: bytes, value: bytes) -> int:
    """Returns the bytes that a row takes in a block."""
    return _ROW.size + len(key) + len(value)


def decode_header(data: Buffer, path: str) -> SnapshotId:
    """Returns the id of the snapshot.

    Raises:
        DamagedFile: the header is damaged.
        FormatFromTheFuture: a later release wrote it.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedFile(path, "it is truncated")
    magic, format_, size, end, term = _HEADER.unpack_from(data)
    (checksum,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != MAGIC or checksum != crc32c(data[: _HEADER.size]) or size != HEADER_BYTES:
        raise DamagedFile(path, "its header is damaged, or it is not a snapshot")
    if format_ > FORMAT:
        raise FormatFromTheFuture(path, format_, FORMAT)
    return SnapshotId(end, term)


def read_footer(data: memoryview, path: str) -> Footer:
    """Check all bytes of a snapshot's file. Returns its footer. Raises DamagedFile."""
    position = HEADER_BYTES
    while True:
        size, checksum = _block_at(data, position, path)
        if size == 0:
            break
        body = data[position + _BLOCK.size : position + _BLOCK.size + size]
        if len(body) < size:
            raise DamagedFile(path, "it is truncated")
        if crc32c(body) != checksum:
            raise DamagedFile(path, f"the block at byte {position} is damaged")
        position += _BLOCK.size + size
    footer = decode_footer(data[position:], path)
    if footer.checksum != xxhash.xxh3_128_digest(data[:position]):
        raise DamagedFile(path, "its checksum differs")
    return footer


def decode_block_head(data: Buffer, path: str) -> tuple[int, int]:
    """Returns the size and the checksum of the block that begins so; size 0 is the footer's.

    Raises:
        DamagedFile: the file ends before.
    """
    return _block_at(memoryview(data), 0, path)


def decode_footer(data: Buffer, path: str) -> Footer:
    """Returns the footer that these bytes are, and nothing else. Raises DamagedFile."""
    _, checksum = _block_at(memoryview(data), 0, path)
    body = data[_BLOCK.size :]
    if len(body) != _FOOTER.size or crc32c(body) != checksum:
        raise DamagedFile(path, "its footer is damaged")
    rows, digest, whole = _FOOTER.unpack(body)
    return Footer(rows=rows, digest=int.from_bytes(digest, "big"), checksum=whole)


def rows_in(data: memoryview, path: str) -> Iterator[Row]:
    """Yields the rows of a file that `read_footer` has checked."""
    position = HEADER_BYTES
    while (size := _block_at(data, position, path)[0]) != 0:
        position += _BLOCK.size
        yield from block_rows(bytes(data[position : position + size]))
        position += size


def block_rows(body: bytes) -> Iterator[Row]:
    """Yields the rows of a block whose checksum was checked."""
    position = 0
    while position < len(body):
        key_size, value_size = _ROW.unpack_from(body, position)
        start = position + _ROW.size
        position = start + key_size + value_size
        yield body[start : start + key_size], body[start + key_size : position]


def _block_at(data: memoryview, position: int, path: str) -> tuple[int, int]:
    if position + _BLOCK.size > len(data):
        raise DamagedFile(path, "it is truncated")
    size, checksum = _BLOCK.unpack_from(data, position)
    return size, checksum

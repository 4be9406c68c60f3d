"""A small file of rows of equal size, followed by a checksum.

    file := magic: byte[4] | format: uint16 | row_size: uint16 | count: uint32
            | row{count} | checksum: uint64 (xxh3-64 of all before it)

All big-endian; the module that owns the file defines its rows. A later release may lengthen the rows:
readers skip the part that they do not know.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import xxhash

from storage.files.errors import DamagedFile, FormatFromTheFuture

HEADER = struct.Struct(">4sHHI")
CHECKSUM = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """One kind of row file."""

    magic: bytes
    format: int
    row_bytes: int
    noun: str
    """What the rows are, in the plural; for messages."""

    def encode(self, rows: bytes | bytearray) -> bytes:
        """Returns the bytes of a file with these rows."""
        count = len(rows) // self.row_bytes
        body = HEADER.pack(self.magic, self.format, self.row_bytes, count) + rows
        return body + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))

    def decode(self, data: bytes, path: str) -> tuple[memoryview, int]:
        """Returns the rows of a file and the size of one row; `path` is for messages only.

        Raises:
            FormatFromTheFuture: a later release wrote it.
            DamagedFile: it is cut short or its checksum differs.
        """
        if len(data) < HEADER.size + CHECKSUM.size:
            raise DamagedFile(path, f"only {len(data)} bytes long")
        checked = memoryview(data)[: -CHECKSUM.size]
        (checksum,) = CHECKSUM.unpack_from(data, len(checked))
        magic, version, row_bytes, count = HEADER.unpack_from(data)
        if magic != self.magic or checksum != xxhash.xxh3_64_intdigest(checked):
            raise DamagedFile(path, "its checksum differs")
        if version > self.format:
            raise FormatFromTheFuture(path, version, self.format)
        if row_bytes < self.row_bytes or len(checked) != HEADER.size + count * row_bytes:
            raise DamagedFile(path, f"{len(data)} bytes do not hold {count} {self.noun}")
        return checked[HEADER.size :], row_bytes

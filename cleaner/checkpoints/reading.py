"""Reads a checkpoint of a coordinator's partition, and checks it on the way.

A reader must not use what it was fed before `pieces` has ended: the checksum stands at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import xxhash

from protocol.records.batch_header import HEADER_BYTES as BATCH_HEADER_BYTES
from storage.batches.walk import claimed_bytes
from storage.files.errors import DamagedFile
from storage.files.files import File, FileSystem
from storage.formats.coordinator_checkpoint import (
    FOOTER_BYTES,
    HEADER_BYTES,
    decode_footer,
    decode_header,
)

PIECE_BYTES = 256 << 10
"""The size of a piece: feeding one to a scan holds the interpreter for about a millisecond."""


class CheckpointReader:
    """An open checkpoint; a context manager that closes it. One thread at a time."""

    __slots__ = ("_file", "footer", "header", "path", "size")

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Open a checkpoint and read its header and its footer.

        Raises:
            MissingFile: there is none.
            DamagedFile, FormatFromTheFuture: see `decode_header`.
            DiskError: it cannot be read.
        """
        # Constant after construction
        self.path = path
        self._file: File = fs.open(path)
        try:
            self.size = self._file.size
            self.header = decode_header(self._file.read_at(0, HEADER_BYTES), path)
            self.footer = decode_footer(self._file.read_at(self.footer_at, FOOTER_BYTES), path)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read_at(self, position: int, size: int) -> bytes:
        """Returns bytes of the file as they are, fewer only at its end. Any thread. Raises DiskError."""
        return self._file.read_at(position, size)

    @property
    def footer_at(self) -> int:
        """Where the footer begins; not before the header's end, even in a file that is too short."""
        return max(self.size - FOOTER_BYTES, HEADER_BYTES)

    def pieces(self) -> Iterator[memoryview]:
        """Yields all batches, in pieces of whole ones; checks the file's checksum at the end.

        Raises:
            DamagedFile: the file is damaged.
            DiskError: it cannot be read.
        """
        position, end = HEADER_BYTES, self.footer_at
        checksum = xxhash.xxh3_128(self._file.read_at(0, HEADER_BYTES))
        wanted = PIECE_BYTES
        while position < end:
            data = memoryview(self._file.read_at(position, min(wanted, end - position)))
            size = whole_batches(data)
            if size == 0:
                wanted = claimed_bytes(data)
                if wanted <= len(data) or wanted > end - position:
                    raise DamagedFile(self.path, f"no batch is at byte {position}")
                continue
            checksum.update(data[:size])
            yield data[:size]
            position, wanted = position + size, PIECE_BYTES
        footer = self._file.read_at(end, FOOTER_BYTES)
        checksum.update(footer[: -len(self.footer.checksum)])
        if checksum.digest() != self.footer.checksum:
            raise DamagedFile(self.path, "its checksum differs")


def whole_batches(data: memoryview) -> int:
    """Returns the size of the whole batches with which some bytes begin, by their length fields."""
    position = 0
    while len(data) - position >= BATCH_HEADER_BYTES:
        size = claimed_bytes(data[position:])
        if size > len(data) - position:
            break
        position += size
    return position

"""Reads a snapshot's file one block at a time, so that its reader needs no memory for the state."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import xxhash

from protocol.records.batch_scan import crc32c
from replog.checkpoint_format import (
    BLOCK_HEAD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    Footer,
    block_rows,
    decode_block_head,
    decode_footer,
    decode_header,
)
from replog.checkpoints import Checkpoint
from replog.entry import SnapshotId
from replog.machine import Row
from storage.files.errors import DamagedFile
from storage.files.files import File


class SnapshotReader:
    """The rows of an open file, which its owner closes."""

    __slots__ = ("_file", "_footer", "_places", "_snapshot")

    def __init__(self, file: File, snapshot: SnapshotId) -> None:
        """Read the header. Raises DamagedFile: it is damaged, or belongs to another snapshot."""
        found = decode_header(file.read_at(0, HEADER_BYTES), file.path)
        if found != snapshot:
            raise DamagedFile(file.path, "it is another snapshot than its name says")
        # Constant after construction
        self._file = file
        self._snapshot = snapshot
        # State
        self._footer: Footer | None = None
        self._places: list[tuple[int, int]] | None = None

    def rows(self) -> Iterator[Row]:
        """Yields all rows. Raises DamagedFile at the first damaged block, or at the end."""
        for body in self._checked_blocks():
            yield from block_rows(body)

    def check(self) -> Checkpoint:
        """Check all bytes. Raises DamagedFile."""
        for _ in self._checked_blocks():
            pass
        footer = self._footer
        assert footer is not None
        return Checkpoint(
            snapshot=self._snapshot,
            size=self._file.size,
            digest=footer.digest,
            checksum=footer.checksum,
        )

    def value_of(self, key: bytes) -> bytes | None:
        """Returns the value of a row; None if there is none. Reads some blocks. Raises DamagedFile."""
        if self._places is None:
            self._places = self._find_blocks()
        number = bisect.bisect_right(self._places, key, key=self._first_key) - 1
        if number < 0:
            return None
        rows = block_rows(self._block(*self._places[number]))
        return next((value for each, value in rows if each == key), None)

    def _checked_blocks(self) -> Iterator[bytes]:
        """Yields the blocks; checks each of them, and at the end the whole."""
        file = self._file
        whole = xxhash.xxh3_128(file.read_at(0, HEADER_BYTES))
        position = HEADER_BYTES
        while True:
            head, size, checksum = self._head_at(position)
            if size == 0:
                break
            body = file.read_at(position + BLOCK_HEAD_BYTES, size)
            self._check_block(body, size, checksum, position)
            whole.update(head)
            whole.update(body)
            position += BLOCK_HEAD_BYTES + size
            yield body
        footer = decode_footer(file.read_at(position, FOOTER_BYTES + 1), file.path)
        if footer.checksum != whole.digest():
            raise DamagedFile(file.path, "its checksum differs")
        self._footer = footer

    def _find_blocks(self) -> list[tuple[int, int]]:
        """Returns the position and the size of each block."""
        places: list[tuple[int, int]] = []
        position = HEADER_BYTES
        while True:
            _, size, _ = self._head_at(position)
            if size == 0:
                return places
            places.append((position, size))
            position += BLOCK_HEAD_BYTES + size

    def _head_at(self, position: int) -> tuple[bytes, int, int]:
        """Returns the head of a block, with the size and the checksum of what follows.

        The head may be damaged, so a size beyond the file's end is refused before it is allocated.
        """
        head = self._file.read_at(position, BLOCK_HEAD_BYTES)
        size, checksum = decode_block_head(head, self._file.path)
        if size > self._file.size - position:
            raise DamagedFile(self._file.path, "it is truncated")
        return head, size, checksum

    def _first_key(self, place: tuple[int, int]) -> bytes:
        key, _ = next(block_rows(self._block(*place)))
        return key

    def _block(self, position: int, size: int) -> bytes:
        data = self._file.read_at(position, BLOCK_HEAD_BYTES + size)
        _, checksum = decode_block_head(data, self._file.path)
        self._check_block(data[BLOCK_HEAD_BYTES:], size, checksum, position)
        return data[BLOCK_HEAD_BYTES:]

    def _check_block(self, body: bytes, size: int, checksum: int, position: int) -> None:
        if len(body) < size:
            raise DamagedFile(self._file.path, "it is truncated")
        if crc32c(body) != checksum:
            raise DamagedFile(self._file.path, f"the block at byte {position} is damaged")

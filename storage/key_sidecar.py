"""The key sidecar of a sealed segment: what the cleaner must know of its records, without values.

    file    := header | block{blocks} | trailer
    header  := magic "KKEY" | format: uint16 = 1 | header size: uint16 = 48
             | special row size: uint16 = 24 | entry size: uint16 = 24 | trailer size: uint16 = 88
             | reserved: uint16 | base offset: int64 | file version: int64
             | hash key check: the first 8 bytes of SHA-256 of hash.key
             | checksum: uint64
    block   := data bytes: uint32 (of the segment: whole batches, right behind the last block's)
             | special rows: uint32 | entries: uint32 | unkeyed records: uint32
             | special row{special rows} | entry{entries} | checksum: uint64
    special := first offset - base offset: uint32 | last offset - base offset: uint32
             | producer id: int64 | producer epoch: int16 | kind: uint8 | flags: uint8
             | reserved: uint32
    entry   := SipHash-2-4-128 of the key under hash.key: 16 bytes
             | bit 31: tombstone, bits 0-30: offset - base offset: uint32
             | record's size, with its length field, uncompressed: uint32
    trailer := 0: uint32{4} | segment size: int64 | blocks | entries
             | tombstones in batches without a delete horizon | unkeyed records | special rows
             | batches | least delete horizon of batches that hold a tombstone or a marker, -1: none
             (each int64) | checksum: uint64

Integers are big-endian. A checksum is the low 64 bits of XXH3-128 of its header, block or trailer up
to there. A batch has a special row if it is transactional (kind 1), a marker (2 COMMIT, 3 ABORT, 4 any
other control batch) or holds no records (5, whatever else it is); flags: bit 0 transactional, bit 1
control, bit 2 it has a delete horizon. Each keyed record of a batch that is not a control batch has an
entry. Rows and entries are in offset order.

It is derived and never synced: whatever a crash leaves of it is noticed, by the checksums and by the
sizes that must agree, and who notices removes it and makes it anew from the segment. It speaks for the
one file of the base offset and version that its header and name say, at the size that its trailer says.
The kernel makes and reads blocks (`cleaner/kernel.pyx`); here they are bytes with a checksum.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from storage.errors import DamagedSidecar, DiskError, MissingFile, NoSpace, StorageError
from storage.files import File, FileSystem, unlink_if_there
from storage.key_totals import KeyTotals
from storage.manifest import SegmentRow

HEADER = struct.Struct(">4sHHHHHHqq8s")
HEAD = struct.Struct(">IIII")
TRAILER = struct.Struct(">16xqqqqqqqq")
CHECKSUM_BYTES = 8
MAGIC = b"KKEY"
FORMAT = 1
HEADER_BYTES = HEADER.size + CHECKSUM_BYTES
SPECIAL_BYTES = 24
ENTRY_BYTES = 24
TRAILER_BYTES = TRAILER.size + CHECKSUM_BYTES
assert (HEADER_BYTES, TRAILER_BYTES) == (48, 88)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBlock:
    """The entries of some batches, back to back."""

    position: int
    """Where these batches begin in the segment."""
    data_bytes: int
    """How long they are."""
    first_entry: int
    """How many entries the blocks before it hold."""
    special_count: int
    entry_count: int
    unkeyed_count: int
    data: memoryview
    """The whole block, as the kernel takes it."""


class Head(NamedTuple):
    """How a block begins."""

    data_bytes: int
    special_rows: int
    entries: int
    unkeyed: int

    @property
    def block_bytes(self) -> int:
        """The size of the whole block."""
        rows = self.special_rows * SPECIAL_BYTES + self.entries * ENTRY_BYTES
        return HEAD.size + rows + CHECKSUM_BYTES


class BlockSums(NamedTuple):
    """What some blocks hold together."""

    blocks: int = 0
    data_bytes: int = 0
    special_rows: int = 0
    entries: int = 0
    unkeyed: int = 0

    def plus(self, head: Head) -> BlockSums:
        """The sums with one more block."""
        return BlockSums(
            self.blocks + 1,
            self.data_bytes + head.data_bytes,
            self.special_rows + head.special_rows,
            self.entries + head.entries,
            self.unkeyed + head.unkeyed,
        )


class KeySidecar:
    """A sidecar whose header and trailer were read; holds no file open between reads."""

    __slots__ = ("_fs", "path", "size", "sums", "totals")

    def __init__(
        self, fs: FileSystem, path: str, size: int, sums: BlockSums, totals: KeyTotals
    ) -> None:
        self._fs = fs
        self.path = path
        self.size = size
        """Bytes of the sidecar itself."""
        self.sums = sums
        """What its blocks must hold together."""
        self.totals = totals

    @staticmethod
    def open(fs: FileSystem, path: str, row: SegmentRow, hash_key: bytes) -> KeySidecar:
        """Read the header and the totals of the sidecar of the segment that `row` lists.

        Raises:
            MissingFile: it is not there.
            DamagedSidecar: it is damaged, or speaks for other bytes or another hash key.
            NoSpace: no descriptor is left.
        """
        with _reading(path, passes=(NoSpace, MissingFile)):
            file = fs.open(path)
        try:
            with _reading(path):
                header = file.read_at(0, HEADER_BYTES)
                trailer = file.read_at(max(0, file.size - TRAILER_BYTES), TRAILER_BYTES)
        finally:
            file.close()
        if header != _header(row.base_offset, row.file_version, hash_key):
            raise DamagedSidecar(path, "its header is not that of this segment and hash key")
        sums, totals = _read_trailer(path, trailer)
        if sums.data_bytes != row.size:
            reason = f"it speaks for {sums.data_bytes} bytes, its segment has {row.size}"
            raise DamagedSidecar(path, reason)
        if file.size != _file_bytes(sums):
            raise DamagedSidecar(path, f"it has {file.size} bytes instead of {_file_bytes(sums)}")
        return KeySidecar(fs, path, file.size, sums, totals)

    def blocks(self, start: int = 0) -> Iterator[KeyBlock]:
        """The blocks that speak for the segment from byte `start` on, one in memory at a time.

        Those before are passed over by their sizes. Closing the iterator closes the file.

        Raises:
            DamagedSidecar: it is damaged there, or was removed meanwhile.
            NoSpace: no descriptor is left.
        """
        with _reading(self.path):
            file = self._fs.open(self.path)
        place, passed = HEADER_BYTES, BlockSums()
        try:
            while place < self.size - TRAILER_BYTES:
                head = self._head_at(file, place)
                if passed.data_bytes + head.data_bytes > start:
                    yield self._block_at(file, place, head, passed)
                place += head.block_bytes
                passed = passed.plus(head)
        finally:
            file.close()
        if passed != self.sums:
            raise DamagedSidecar(self.path, f"its blocks hold {passed}, its trailer {self.sums}")

    def _head_at(self, file: File, place: int) -> Head:
        with _reading(self.path):
            data = file.read_at(place, HEAD.size)
        head = Head(*HEAD.unpack(data)) if len(data) == HEAD.size else Head(0, 0, 0, 0)
        if not head.data_bytes or place + head.block_bytes > self.size - TRAILER_BYTES:
            raise DamagedSidecar(self.path, f"what begins at byte {place} cannot be a block")
        return head

    def _block_at(self, file: File, place: int, head: Head, passed: BlockSums) -> KeyBlock:
        with _reading(self.path):
            data = memoryview(file.read_at(place, head.block_bytes))
        if len(data) != head.block_bytes or not is_sealed(data):
            raise DamagedSidecar(self.path, f"the checksum of the block at byte {place} differs")
        return KeyBlock(
            position=passed.data_bytes,
            data_bytes=head.data_bytes,
            first_entry=passed.entries,
            special_count=head.special_rows,
            entry_count=head.entries,
            unkeyed_count=head.unkeyed,
            data=data,
        )


class KeySidecarWriter:
    """Writes one sidecar, block by block; `finish` or `discard` ends it, and so does a failure."""

    __slots__ = ("_file", "_fs", "_on_end", "_path", "_placed_as", "_sums")

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        base_offset: int,
        file_version: int,
        hash_key: bytes,
        placed_as: str | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin the sidecar of the segment of that base offset and version.

        Args:
            path: its name while it is written; what has it is replaced.
            placed_as: the name that `finish` gives it; None: it keeps `path`.
            on_end: called when the writer, once it was made, is done with its file.

        Raises:
            NoSpace, DiskError: there is no file.
        """
        self._fs = fs
        self._path = path
        self._placed_as = placed_as
        self._on_end: Callable[[], None] = lambda: None
        self._sums = BlockSums()
        unlink_if_there(fs, path)
        self._file = fs.open(path, create=True)
        with self._discarding():
            self._file.append((_header(base_offset, file_version, hash_key),))
        self._on_end = on_end

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def append(self, block: bytes | memoryview) -> None:
        """Write a finished block, checksum included.

        Raises:
            NoSpace, DiskError: nothing is left of the file.
        """
        self._sums = self._sums.plus(Head(*HEAD.unpack_from(block)))
        with self._discarding():
            self._file.append((block,))

    def finish(self, segment_size: int, totals: KeyTotals) -> None:
        """Write the trailer: from now on the sidecar is one.

        Raises:
            ValueError: the blocks that were appended do not sum up to `totals` and the size.
            NoSpace, DiskError: as `append`.
        """
        with self._discarding():
            self._check(segment_size, totals)
            self._file.append((_trailer(segment_size, totals),))
            if self._placed_as is not None:
                # A truncation removes what is staged, and then there is nothing to speak for.
                with suppress(MissingFile):
                    self._fs.rename(self._path, self._placed_as)
        self._end()

    def discard(self) -> None:
        """Remove what was written."""
        try:
            unlink_if_there(self._fs, self._path)
        finally:
            self._end()

    def _check(self, segment_size: int, totals: KeyTotals) -> None:
        told = _sums_of(segment_size, totals)
        if self._sums != told:
            raise ValueError(f"{self._path}: its blocks hold {self._sums}, and should {told}")

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Leave nothing of the file behind if this fails."""
        try:
            yield
        except (StorageError, ValueError):
            with suppress(StorageError):
                self.discard()
            raise

    def _end(self) -> None:
        self._file.close()
        on_end, self._on_end = self._on_end, lambda: None
        on_end()


def sealed(body: bytes) -> bytes:
    """The bytes with their checksum behind them."""
    return body + _checksum(body)


def is_sealed(data: bytes | memoryview) -> bool:
    """Whether the checksum at the end is that of what is before it."""
    return _checksum(data[:-CHECKSUM_BYTES]) == data[-CHECKSUM_BYTES:]


def _checksum(data: bytes | memoryview) -> bytes:
    return xxhash.xxh3_128_digest(data)[8:]


def _header(base_offset: int, file_version: int, hash_key: bytes) -> bytes:
    sizes = HEADER_BYTES, SPECIAL_BYTES, ENTRY_BYTES, TRAILER_BYTES
    # Nothing from which the key could be found.
    check = hashlib.sha256(hash_key).digest()[:8]
    return sealed(HEADER.pack(MAGIC, FORMAT, *sizes, 0, base_offset, file_version, check))


def _trailer(segment_size: int, totals: KeyTotals) -> bytes:
    return sealed(
        TRAILER.pack(
            segment_size,
            totals.blocks,
            totals.entries,
            totals.tombstones,
            totals.unkeyed,
            totals.special_rows,
            totals.batches,
            totals.least_delete_horizon_ms,
        )
    )


def _read_trailer(path: str, trailer: bytes) -> tuple[BlockSums, KeyTotals]:
    if len(trailer) < TRAILER_BYTES or any(trailer[:16]) or not is_sealed(trailer):
        raise DamagedSidecar(path, "its trailer is missing or damaged")
    size, *counts, horizon = TRAILER.unpack_from(trailer)
    blocks, entries, tombstones, unkeyed, special_rows, batches = counts
    totals = KeyTotals(
        blocks=blocks,
        entries=entries,
        tombstones=tombstones,
        unkeyed=unkeyed,
        special_rows=special_rows,
        batches=batches,
        least_delete_horizon_ms=horizon,
    )
    return _sums_of(size, totals), totals


def _sums_of(segment_size: int, totals: KeyTotals) -> BlockSums:
    """What the blocks of a segment of that size hold together."""
    rows = totals.special_rows, totals.entries, totals.unkeyed
    return BlockSums(totals.blocks, segment_size, *rows)


def _file_bytes(sums: BlockSums) -> int:
    """How long a file with such blocks is."""
    ends = HEADER_BYTES + TRAILER_BYTES + sums.blocks * (HEAD.size + CHECKSUM_BYTES)
    return ends + sums.special_rows * SPECIAL_BYTES + sums.entries * ENTRY_BYTES


@contextmanager
def _reading(path: str, *, passes: tuple[type[DiskError], ...] = (NoSpace,)) -> Iterator[None]:
    """Take what the disk cannot read for damage: the file is made anew somewhere else."""
    try:
        yield
    except passes:
        raise
    except DiskError as error:
        raise DamagedSidecar(path, str(error)) from error

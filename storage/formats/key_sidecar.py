"""The key sidecar of a sealed segment: what the cleaner must know of its records, without their values.

    file    := header | block{blocks} | trailer
    header  := magic "KKEY" | format: uint16 = 1 | header size: uint16 = 48
             | special row size: uint16 = 24 | entry size: uint16 = 24 | trailer size: uint16 = 88
             | flags: uint16 (bit 0: its keys were checked) | base offset: int64 | file version: int64
             | hash key check: the first 8 bytes of SHA-256 of hash.key
             | [format 2] versions: uint8 (1 timestamps, 2 headers, 3 timestamps, though records are
               ranked by offset) | name size: uint8 | name of the header, UTF-8, filled up with zeros:
               254 bytes
             | checksum: uint64
    block   := data bytes: uint32 (of the segment: whole batches, right after the last block's)
             | special rows: uint32 | entries: uint32 | unkeyed records: uint32
             | special row{special rows} | entry{entries}
             | [format 2] version: int64{entries}, of the entries in their order
             | checksum: uint64
    special := first offset - base offset: uint32 | last offset - base offset: uint32
             | producer id: int64 | producer epoch: int16 | kind: uint8 | flags: uint8
             | reserved: uint32
    entry   := SipHash-2-4-128 of the key under hash.key: 16 bytes
             | bit 31: tombstone, bits 0-30: offset - base offset: uint32
             | record's size, with its length field, uncompressed: uint32
    trailer := 0: uint32{4} | segment size: int64 | blocks | entries
             | tombstones in batches without a delete horizon | unkeyed records | special rows
             | batches | least delete horizon of batches with a tombstone or of kind 2 or 3, -1: none
             (each int64) | checksum: uint64

Format 2 is that of topics whose records have versions (`compaction.strategy`), or whose older values are
thinned by their timestamps (`compaction.thinning`): its header has 304 bytes. All others have format 1.

Integers are big-endian. A checksum is the low 64 bits of XXH3-128 of its header, block or trailer up
to there. A batch has a special row if it is transactional (kind 1), a marker (2 COMMIT, 3 ABORT, 4 any
other control batch) or holds no records (5, of any kind); flags: bit 0 transactional, bit 1
control, bit 2 it has a delete horizon. Each keyed record of a batch that is not a control batch has an
entry. Rows and entries are in offset order.

Its keys were checked if each entry's key and version were compared, in a pass that verifies, with those
of its record, and the entries in this file with the ones that were compared (docs/design/cleaning.md).
Releases before that flag ignore it, and write 0.

It is derived and never synced. Checksums, and sizes that must agree, reveal any damage that a crash
leaves; the reader that notices removes the sidecar and builds it again from the segment. It is valid for
exactly one file: the one with the base offset and version in its header and name, at the size in its
trailer. The kernel writes and reads blocks (`cleaner/kernel/kernel.pyx`); here they are bytes with a
checksum.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import xxhash

from storage.files.errors import DamagedSidecar, DiskError, MissingFile, NoSpace
from storage.files.files import File, FileSystem
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy, Ranking
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import SegmentRow

HEADER = struct.Struct(">4sHHHHHHqq8s")
RANKING = struct.Struct(">BB254s")
HEAD = struct.Struct(">IIII")
SPECIAL = struct.Struct(">IIqhBB4x")
ENTRY = struct.Struct(">16sII")
VERSION = struct.Struct(">q")
TRAILER = struct.Struct(">16xqqqqqqqq")
CHECKSUM_BYTES = 8
MAGIC = b"KKEY"
FORMAT, FORMAT_WITH_VERSIONS = 1, 2
FLAG_KEYS_CHECKED = 1
HEADER_BYTES = HEADER.size + CHECKSUM_BYTES
VERSIONED_HEADER_BYTES = HEADER_BYTES + RANKING.size
COLUMNS = {
    1: CompactionStrategy(Ranking.TIMESTAMP),
    2: CompactionStrategy(Ranking.HEADER),
    3: CompactionStrategy(has_timestamps=True),
}
"""What a number in the header says about its versions, without the header's name."""
TOMBSTONE = 1 << 31
TRAILER_BYTES = TRAILER.size + CHECKSUM_BYTES
assert (HEADER_BYTES, SPECIAL.size, ENTRY.size, TRAILER_BYTES) == (48, 24, 24, 88)


class SpecialRow(NamedTuple):
    """A batch that is not plain data. Offsets are relative to the segment's base offset."""

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    kind: int
    """1 data of a transaction, 2 COMMIT, 3 ABORT, 4 another control batch, 5 without records."""
    flags: int
    """Bit 0: transactional, 1: control, 2: it has a delete horizon."""


class KeyEntry(NamedTuple):
    """A keyed record."""

    key_hash: bytes
    offset: int
    """Relative to the segment's base offset; bit 31 marks a tombstone."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBlock:
    """The entries of adjacent batches."""

    position: int
    """The position in the segment where these batches begin."""
    data_bytes: int
    """The size of these batches."""
    first_entry: int
    """The number of entries in the blocks before it."""
    special_count: int
    entry_count: int
    unkeyed_count: int
    has_column: bool
    data: memoryview
    """The whole block, in the form that the kernel takes."""

    def special_rows(self) -> Iterator[SpecialRow]:
        """Returns its special rows, for tools; the cleaner's kernel reads them itself."""
        return map(SpecialRow._make, SPECIAL.iter_unpack(self.data[HEAD.size : self.entries_at]))

    def entries(self) -> Iterator[KeyEntry]:
        """Returns its entries, for tools."""
        rows = self.data[self.entries_at : self.versions_at]
        return map(KeyEntry._make, ENTRY.iter_unpack(rows))

    def versions(self) -> Iterator[int]:
        """Returns the versions of its entries; nothing if records have none."""
        return (
            version
            for (version,) in VERSION.iter_unpack(self.data[self.versions_at : -CHECKSUM_BYTES])
        )

    @property
    def entries_at(self) -> int:
        """The position in the block where the entries begin."""
        return HEAD.size + self.special_count * SPECIAL.size

    @property
    def versions_at(self) -> int:
        """The position in the block where the entries end and their versions, if any, begin."""
        return self.entries_at + self.entry_count * ENTRY.size


class Head(NamedTuple):
    """The counts at the start of a block."""

    data_bytes: int
    special_rows: int
    entries: int
    unkeyed: int

    def block_bytes(self, *, has_column: bool) -> int:
        """Returns the size of the whole block."""
        rows = self.special_rows * SPECIAL.size + self.entries * entry_bytes(has_column)
        return HEAD.size + rows + CHECKSUM_BYTES


class BlockSums(NamedTuple):
    """The sums over several blocks."""

    blocks: int = 0
    data_bytes: int = 0
    special_rows: int = 0
    entries: int = 0
    unkeyed: int = 0

    def plus(self, head: Head) -> BlockSums:
        """Returns the sums with one more block."""
        return BlockSums(
            self.blocks + 1,
            self.data_bytes + head.data_bytes,
            self.special_rows + head.special_rows,
            self.entries + head.entries,
            self.unkeyed + head.unkeyed,
        )


class SidecarHeader(NamedTuple):
    """What a sidecar's header says about its segment and its entries."""

    base_offset: int
    file_version: int
    hash_key_check: bytes
    strategy: CompactionStrategy
    keys_checked: bool = False
    """Whether a pass has compared each entry's key with that of its record."""

    @property
    def size(self) -> int:
        """The size of the header."""
        return VERSIONED_HEADER_BYTES if self.strategy.has_column else HEADER_BYTES


class KeySidecar:
    """A sidecar whose header and trailer were read. Holds no file open between reads."""

    __slots__ = (
        "_fs",
        "header",
        "path",
        "size",
        "sums",
        "totals",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        size: int,
        header: SidecarHeader,
        sums: BlockSums,
        totals: KeyTotals,
    ) -> None:
        self._fs = fs
        self.path = path
        self.size = size
        """The size of the sidecar itself."""
        self.header = header
        self.sums = sums
        """The sums that its blocks must have."""
        self.totals = totals

    @property
    def blocks_bytes(self) -> int:
        """The size of all its blocks, which is what reading them costs."""
        return self.size - self.header.size - TRAILER_BYTES

    @staticmethod
    def open(
        fs: FileSystem,
        path: str,
        row: SegmentRow,
        hash_key: bytes,
        strategy: CompactionStrategy = BY_OFFSET,
    ) -> KeySidecar:
        """Open the sidecar of the segment that `row` lists; reads header and trailer.

        Args:
            strategy: how the topic ranks the records of a key.

        Raises:
            MissingFile: there is no sidecar.
            DamagedSidecar: it is damaged, or belongs to other bytes, another hash key or strategy.
            NoSpace: no descriptor is left.
        """
        sidecar = KeySidecar.open_for_segment(fs, path, row)
        sidecar.check_hash_key(hash_key)
        if sidecar.header.strategy != strategy:
            made_for = sidecar.header.strategy
            raise DamagedSidecar(path, f"it is for {made_for.text}, its topic for {strategy.text}")
        return sidecar

    def check_hash_key(self, hash_key: bytes) -> None:
        """Raise DamagedSidecar if it was made under another hash key."""
        if self.header.hash_key_check != hash_key_check(hash_key):
            raise DamagedSidecar(self.path, "it was made under another hash key")

    @staticmethod
    def open_for_segment(fs: FileSystem, path: str, row: SegmentRow) -> KeySidecar:
        """Open it like `open`, but without checking the hash key, for callers that do not have it."""
        sidecar = KeySidecar.open_any(fs, path)
        name = sidecar.header[:2]
        if name != (row.base_offset, row.file_version):
            raise DamagedSidecar(path, f"it belongs to segment {name[0]}.v{name[1]}")
        size = sidecar.sums.data_bytes
        if size != row.size:
            raise DamagedSidecar(path, f"it covers {size} bytes, but its segment has {row.size}")
        return sidecar

    @staticmethod
    def open_any(fs: FileSystem, path: str) -> KeySidecar:
        """Open it like `open`, for any segment."""
        with _reading(path, passes=(NoSpace, MissingFile)):
            file = fs.open(path)
        try:
            with _reading(path):
                head = file.read_at(0, VERSIONED_HEADER_BYTES)
                trailer = file.read_at(max(0, file.size - TRAILER_BYTES), TRAILER_BYTES)
        finally:
            file.close()
        header = _read_header(path, head)
        sums, totals = _read_trailer(path, trailer)
        expected = _file_bytes(header, sums)
        if file.size != expected:
            raise DamagedSidecar(path, f"it has {file.size} bytes instead of {expected}")
        return KeySidecar(fs, path, file.size, header, sums, totals)

    def blocks(self, start: int = 0) -> Iterator[KeyBlock]:
        """Yield the blocks that cover the segment from byte `start` on, one in memory at a time.

        Skips the blocks before by their sizes. Closing the iterator closes the file.

        Raises:
            DamagedSidecar: it is damaged there, or was removed meanwhile.
            NoSpace: no descriptor is left.
        """
        with _reading(self.path):
            file = self._fs.open(self.path)
        place, passed = self.header.size, BlockSums()
        has_column = self.header.strategy.has_column
        try:
            self._check_name(file)
            while place < self.size - TRAILER_BYTES:
                head = self._head_at(file, place)
                if passed.data_bytes + head.data_bytes > start:
                    yield self._block_at(file, place, head, passed)
                place += head.block_bytes(has_column=has_column)
                passed = passed.plus(head)
        finally:
            file.close()
        if passed != self.sums:
            raise DamagedSidecar(self.path, f"its blocks hold {passed}, its trailer {self.sums}")

    def _check_name(self, file: File) -> None:
        """Check that the file is still this segment's; blocks look sound in any sidecar."""
        with _reading(self.path):
            header = file.read_at(0, self.header.size)
        if _read_header(self.path, header) != self.header:
            raise DamagedSidecar(self.path, "another sidecar has replaced it")

    def _head_at(self, file: File, place: int) -> Head:
        with _reading(self.path):
            data = file.read_at(place, HEAD.size)
        head = Head(*HEAD.unpack(data)) if len(data) == HEAD.size else Head(0, 0, 0, 0)
        size = head.block_bytes(has_column=self.header.strategy.has_column)
        if not head.data_bytes or place + size > self.size - TRAILER_BYTES:
            raise DamagedSidecar(self.path, f"no block can begin at byte {place}")
        return head

    def _block_at(self, file: File, place: int, head: Head, passed: BlockSums) -> KeyBlock:
        size = head.block_bytes(has_column=self.header.strategy.has_column)
        with _reading(self.path):
            data = memoryview(file.read_at(place, size))
        if len(data) != size or not is_sealed(data):
            raise DamagedSidecar(self.path, f"the checksum of the block at byte {place} differs")
        return key_block(data, position=passed.data_bytes, first_entry=passed.entries)


def key_block(data: bytes | memoryview, *, position: int, first_entry: int) -> KeyBlock:
    """Decode a block's head. The blocks before it cover `position` bytes with `first_entry` entries."""
    head = Head(*HEAD.unpack_from(data))
    return KeyBlock(
        position=position,
        data_bytes=head.data_bytes,
        first_entry=first_entry,
        special_count=head.special_rows,
        entry_count=head.entries,
        unkeyed_count=head.unkeyed,
        has_column=len(data) != head.block_bytes(has_column=False),
        data=memoryview(data),
    )


def key_blocks(all_data: Iterable[bytes]) -> Iterator[KeyBlock]:
    """Decode the heads of all blocks of a segment, in order."""
    position = first_entry = 0
    for data in all_data:
        block = key_block(data, position=position, first_entry=first_entry)
        position += block.data_bytes
        first_entry += block.entry_count
        yield block


def sealed(body: bytes) -> bytes:
    """Returns the bytes followed by their checksum."""
    return body + _checksum(body)


def is_sealed(data: bytes | memoryview) -> bool:
    """Returns whether the checksum at the end matches the bytes before it."""
    return _checksum(data[:-CHECKSUM_BYTES]) == data[-CHECKSUM_BYTES:]


def _checksum(data: bytes | memoryview) -> bytes:
    return xxhash.xxh3_128_digest(data)[8:]


def hash_key_check(hash_key: bytes) -> bytes:
    """Returns the check of a hash key in a header, from which the key cannot be derived."""
    return hashlib.sha256(hash_key).digest()[:8]


def header_of(
    base_offset: int,
    file_version: int,
    hash_key: bytes,
    strategy: CompactionStrategy = BY_OFFSET,
    *,
    keys_checked: bool = False,
) -> bytes:
    """Returns the header of that segment's sidecar."""
    header = SidecarHeader(base_offset, file_version, hash_key_check(hash_key), strategy)
    format_ = FORMAT_WITH_VERSIONS if strategy.has_column else FORMAT
    sizes = header.size, SPECIAL.size, ENTRY.size, TRAILER_BYTES
    flags = FLAG_KEYS_CHECKED * keys_checked
    return sealed(HEADER.pack(MAGIC, format_, *sizes, flags, *header[:3]) + _packed(strategy))


def _packed(strategy: CompactionStrategy) -> bytes:
    if not strategy.has_column:
        return b""
    name = strategy.header.encode()
    (number,) = (number for number, each in COLUMNS.items() if each == replace(strategy, header=""))
    return RANKING.pack(number, len(name), name)


def _read_header(path: str, data: bytes) -> SidecarHeader:
    """Returns what the header at the start of `data` says."""
    if len(data) < HEADER_BYTES:
        raise DamagedSidecar(path, "its header is missing or damaged")
    magic, format_, *_, flags, base_offset, file_version, check = HEADER.unpack_from(data)
    if magic != MAGIC or format_ not in (FORMAT, FORMAT_WITH_VERSIONS):
        raise DamagedSidecar(path, f"it has another format ({magic!r}, {format_})")
    has_column = format_ == FORMAT_WITH_VERSIONS
    size = VERSIONED_HEADER_BYTES if has_column else HEADER_BYTES
    if len(data) < size or not is_sealed(data[:size]):
        raise DamagedSidecar(path, "its header is missing or damaged")
    strategy = _read_strategy(path, data) if has_column else BY_OFFSET
    keys_checked = bool(flags & FLAG_KEYS_CHECKED)
    return SidecarHeader(base_offset, file_version, check, strategy, keys_checked)


def _read_strategy(path: str, data: bytes) -> CompactionStrategy:
    number, size, name = RANKING.unpack_from(data, HEADER.size)
    try:
        return replace(COLUMNS[number], header=name[:size].decode())
    except (KeyError, UnicodeDecodeError):
        raise DamagedSidecar(
            path, f"it has an unknown ranking ({number}, {name[:size]!r})"
        ) from None


def trailer_of(segment_size: int, totals: KeyTotals) -> bytes:
    """Returns the trailer of a sidecar with these totals."""
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
    return sums_of(size, totals), totals


def sums_of(segment_size: int, totals: KeyTotals) -> BlockSums:
    """Returns the sums that the blocks of a sidecar with these totals must have."""
    rows = totals.special_rows, totals.entries, totals.unkeyed
    return BlockSums(totals.blocks, segment_size, *rows)


def _file_bytes(header: SidecarHeader, sums: BlockSums) -> int:
    """Returns the size of a file with such a header and such blocks."""
    has_column = header.strategy.has_column
    return header.size + TRAILER_BYTES + blocks_bytes(sums, has_column=has_column)


def blocks_bytes(counts: BlockSums | KeyTotals, *, has_column: bool = False) -> int:
    """Returns the size of all blocks with such counts, which is what reading them costs."""
    rows = counts.special_rows * SPECIAL.size + counts.entries * entry_bytes(has_column)
    return counts.blocks * (HEAD.size + CHECKSUM_BYTES) + rows


def entry_bytes(has_column: bool) -> int:
    """Returns the size of an entry, with its version if it has one."""
    return ENTRY.size + (VERSION.size if has_column else 0)


@contextmanager
def _reading(path: str, *, passes: tuple[type[DiskError], ...] = (NoSpace,)) -> Iterator[None]:
    """Turn disk errors into DamagedSidecar: the sidecar is then removed and built again."""
    try:
        yield
    except passes:
        raise
    except DiskError as error:
        raise DamagedSidecar(path, str(error)) from error

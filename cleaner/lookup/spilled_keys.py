"""The keys of a log that do not fit into memory: a file of them in the order of their hashes.

    table of the head, full   ->   merged with the file   ->   a new file; the table is empty again

A lookup reads one block: memory has the first hash of each. The file has no name: it goes with the
process, and a crash leaves nothing. Each block has a checksum, so that a wrong one is found.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from cleaner.kernel.kernel import (
    SPILLED_BLOCK_BYTES,
    DeadOffsets,
    OffsetMap,
    SpillMerge,
    find_spilled,
)
from cleaner.pacing.meter import PassMeter
from cleaner.rules.latest import Rank
from storage.files.files import File, FileSystem, unnamed_file

CHUNK_BYTES = 1 << 20
"""Merged at a time; a multiple of the size of a block."""

assert CHUNK_BYTES % SPILLED_BLOCK_BYTES == 0


class SpilledKeys:
    """One such file. For one thread at a time."""

    __slots__ = ("_file", "_first", "_has_versions", "count", "size_bytes")

    def __init__(
        self, file: File, first: array[int], *, has_versions: bool, count: int, size_bytes: int
    ) -> None:
        # Constant after construction.
        self._file = file
        self._first = first
        self._has_versions = has_versions
        self.count = count
        """The keys in it."""
        self.size_bytes = size_bytes

    @property
    def memory_bytes(self) -> int:
        """What it takes of memory."""
        return len(self._first) * self._first.itemsize

    def close(self) -> None:
        """Give back the space on the disk."""
        self._file.close()

    def rank_of(self, hashed: bytes, *, cached_only: bool) -> Rank | None:
        """Returns the rank of a key by its hash; None if it is not in the file.

        Raises:
            SpillDamaged: the block is not what was written.
            NotCached: with `cached_only`, its block is not in memory.
            DiskError: reading failed.
        """
        low = int.from_bytes(hashed[:8], "little")
        number = bisect_right(self._first, low) - 1
        while number >= 0:
            found = self._find_in(number, hashed, cached_only=cached_only)
            if found is not None or self._first[number] != low:
                return found
            number -= 1  # Other hashes with the same first half may have begun a block.
        return None

    def _find_in(self, number: int, hashed: bytes, *, cached_only: bool) -> Rank | None:
        read = self._file.read_cached if cached_only else self._file.read_at
        block = read(number * SPILLED_BLOCK_BYTES, SPILLED_BLOCK_BYTES)
        return find_spilled(block, hashed, has_versions=self._has_versions)

    def chunks(self) -> Iterator[bytes]:
        """Yields the whole file. Raises DiskError."""
        for position in range(0, self.size_bytes, CHUNK_BYTES):
            yield self._file.read_at(position, min(CHUNK_BYTES, self.size_bytes - position))


def merged(
    fs: FileSystem,
    path: str,
    earlier: SpilledKeys | None,
    offset_map: OffsetMap,
    dead: DeadOffsets,
    meter: PassMeter,
    *,
    has_versions: bool,
) -> SpilledKeys:
    """Returns a new file with the keys of a map and those of an earlier file. Both stay as they are.

    Args:
        path: no file has it; the name is gone at once.
        dead: gets the records of keys that are in both, and do not win.

    Raises:
        SpillDamaged: the earlier file is not what was written.
        CleaningAborted: see `PassMeter`.
        DiskError: the disk failed or is full.
    """
    file = unnamed_file(fs, path)
    try:
        return _merged(file, earlier, SpillMerge(offset_map, dead), meter, has_versions)
    except BaseException:
        file.close()
        raise


def _merged(
    file: File,
    earlier: SpilledKeys | None,
    merge: SpillMerge,
    meter: PassMeter,
    has_versions: bool,
) -> SpilledKeys:
    first, size = array("Q"), 0
    for blocks in _blocks(earlier, merge):
        meter.wrote(len(blocks))
        file.append((blocks,))
        size += len(blocks)
        for at in range(0, len(blocks), SPILLED_BLOCK_BYTES):
            first.append(int.from_bytes(blocks[at : at + 8], "little"))
    return SpilledKeys(file, first, has_versions=has_versions, count=merge.count, size_bytes=size)


def _blocks(earlier: SpilledKeys | None, merge: SpillMerge) -> Iterator[bytes]:
    for chunk in earlier.chunks() if earlier is not None else ():
        if blocks := merge.feed(chunk):
            yield blocks
    while blocks := merge.rest(CHUNK_BYTES):
        yield blocks

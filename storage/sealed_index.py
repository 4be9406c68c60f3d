"""The indexes of a sealed segment, searched where they are: in their files, a block at a time.

A gigabyte of segment has two megabytes of offset index. A search touches about ten blocks of it, and
the blocks that all sealed segments need lately share one cache of a few megabytes.

An index is never believed: it says where to look, and the batch that stands there must be the one
that the entry names (`storage/segment.py` checks it, and rebuilds an index that lies).
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from copy import copy

from storage.errors import NotCached
from storage.files import FileSystem
from storage.segment_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
assert (OFFSET_ENTRY.size, TIME_ENTRY.size) == (OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES)

ENTRIES_A_BLOCK = 512
BLOCKS_CACHED = 1024
"""4 or 6 KiB each, for all segments of the process together."""

_numbers = itertools.count()


class BlockCache:
    """The blocks of index files that were used last. Safe in any thread."""

    __slots__ = ("_blocks", "_lock")

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int], load: Callable[[], bytes]) -> bytes:
        """The block, loaded if it is not here."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                return block
        block = load()
        with self._lock:
            self._blocks[key] = block
            if len(self._blocks) > BLOCKS_CACHED:
                self._blocks.popitem(last=False)
        return block


_cache = BlockCache()


class EntryFile:
    """One index file: entries that grow in their first column."""

    __slots__ = ("_entry", "_fs", "_may_load", "_number", "_path", "count")

    def __init__(self, fs: FileSystem, path: str, entry: struct.Struct) -> None:
        """Look at an index file.

        Raises:
            ValueError: it ends inside an entry.
            MissingFile: it is not there.
        """
        size = fs.size(path)
        if size % entry.size:
            raise ValueError(f"{path} ends inside an entry")
        self._fs = fs
        self._path = path
        self._may_load = True
        self._entry = entry
        # A number of its own, because a rebuilt index has other blocks under the same path.
        self._number = next(_numbers)
        self.count = size // entry.size

    def cached_only(self) -> EntryFile:
        """The same entries for who must not wait: a block that is not in memory raises NotCached."""
        same = copy(self)
        same._may_load = False
        return same

    def __getitem__(self, index: int) -> tuple[int, int]:
        block, at = divmod(index, ENTRIES_A_BLOCK)
        first, second = self._entry.unpack_from(self._block(block), at * self._entry.size)
        return first, second

    def count_below(self, column: int, value: int) -> int:
        """How many entries have less than `value` in the column, in which they grow."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self[middle][column] < value:
                low = middle + 1
            else:
                high = middle
        return low

    def _block(self, block: int) -> bytes:
        return _cache.get((self._number, block), lambda: self._load(block))

    def _load(self, block: int) -> bytes:
        if not self._may_load:
            raise NotCached(self._path)
        size = ENTRIES_A_BLOCK * self._entry.size
        file = self._fs.open(self._path)
        try:
            return file.read_at(block * size, size)
        finally:
            file.close()


class SealedIndex:
    """Both indexes of one sealed segment, for lookups. Offsets are relative to its base."""

    __slots__ = ("_offsets", "_times")

    def __init__(
        self, fs: FileSystem, offset_path: str, time_path: str, *, size: int, span: int
    ) -> None:
        """Take the files of a segment with `size` bytes and offsets in [base, base + span).

        Raises:
            ValueError: they cannot be those of such a segment.
            MissingFile: one of them is not there.
        """
        self._offsets = EntryFile(fs, offset_path, OFFSET_ENTRY)
        self._times = EntryFile(fs, time_path, TIME_ENTRY)
        if self._offsets.count:
            first, last = self._offsets[0], self._offsets[self._offsets.count - 1]
            if not (0 <= first[0] <= last[0] < span and 0 < first[1] <= last[1] < size):
                raise ValueError(f"{offset_path} points outside its segment")
        if self._times.count and not 0 <= self._times[self._times.count - 1][1] < span:
            raise ValueError(f"{time_path} points outside its segment")

    def cached_only(self) -> SealedIndex:
        """The same indexes for who must not wait: a block that is not in memory raises NotCached."""
        same = copy(self)
        same._offsets, same._times = self._offsets.cached_only(), self._times.cached_only()
        return same

    def entry_at_or_before(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry up to an offset: the batch's last offset and its position."""
        return self._before(0, relative_offset + 1)

    def entry_up_to_position(self, position: int) -> tuple[int, int] | None:
        """The last entry whose batch begins at or before `position`."""
        return self._before(1, position + 1)

    def entry_before_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry older than `timestamp`: its time, and the last offset it speaks for."""
        found = self._times.count_below(0, timestamp)
        return self._times[found - 1] if found else None

    def _before(self, column: int, value: int) -> tuple[int, int] | None:
        found = self._offsets.count_below(column, value)
        return self._offsets[found - 1] if found else None

"""Searches the indexes of a sealed segment in their files, a block at a time.

A segment of 1 GiB has an offset index of 2 MiB. A search reads about ten blocks of it, and all sealed
segments share one cache of a few megabytes for the blocks used last. A block in memory is two columns of
numbers, so that the standard library's bisection, which is compiled, searches it.

An index is only a hint where to look: `storage/segment/lookup.py` checks that the batch at that place
is the one that the entry names, and rebuilds an index that is wrong.
"""

from __future__ import annotations

import itertools
import struct
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import TypeAlias

from protocol.wire.numbers import Position, RelativeOffset
from storage.files.errors import NotCached
from storage.files.files import FileSystem
from storage.formats.segment_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, Entry, TimeEntry
from storage.threads import any_thread

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
COLUMNS = {OFFSET_ENTRY: "ii", TIME_ENTRY: "qi"}
assert (OFFSET_ENTRY.size, TIME_ENTRY.size) == (OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES)

ENTRIES_PER_BLOCK = 512
BLOCKS_CACHED = 1024
"""Blocks of 4 or 6 KiB, for all segments of the process together."""

Block: TypeAlias = tuple["array[int]", "array[int]"]
"""The columns of its entries."""

_numbers = itertools.count()


@any_thread
class BlockCache:
    """A cache of the index blocks used last."""

    __slots__ = ("_blocks", "_lock")

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int], load: Callable[[], Block]) -> Block:
        """Returns the block, which `load` reads if it is not cached."""
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
    """One index file, whose entries grow in their first column."""

    __slots__ = ("_entry", "_fs", "_may_load", "_number", "_path", "count")

    def __init__(self, fs: FileSystem, path: str, entry: struct.Struct) -> None:
        """Check the size of an index file.

        Raises:
            ValueError: it ends inside an entry.
            MissingFile: it is missing.
        """
        size = fs.size(path)
        if size % entry.size:
            raise ValueError(f"{path} ends inside an entry")
        self._fs = fs
        self._path = path
        self._may_load = True
        self._entry = entry
        # The cache's key: a rebuilt index has other blocks under the same path.
        self._number = next(_numbers)
        self.count = size // entry.size

    def cached_only(self) -> EntryFile:
        """Returns a view of the entries that never waits: a block not in memory raises NotCached."""
        same = copy(self)
        same._may_load = False
        return same

    def __getitem__(self, index: int) -> tuple[int, int]:
        block, at = divmod(index, ENTRIES_PER_BLOCK)
        first, second = self._block(block)
        return first[at], second[at]

    def count_below(self, column: int, value: int) -> int:
        """Returns how many entries are below `value` in a column that grows."""
        # The first blocks, of which each begins below the value: it may end in the last one of them.
        low, high = 0, -(-self.count // ENTRIES_PER_BLOCK)
        while low < high:
            middle = (low + high) // 2
            if self._block(middle)[column][0] < value:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        return (low - 1) * ENTRIES_PER_BLOCK + bisect_left(self._block(low - 1)[column], value)

    def _block(self, block: int) -> Block:
        return _cache.get((self._number, block), lambda: self._load(block))

    def _load(self, block: int) -> Block:
        if not self._may_load:
            raise NotCached(self._path)
        size = ENTRIES_PER_BLOCK * self._entry.size
        file = self._fs.open(self._path)
        try:
            return self._columns(file.read_at(block * size, size))
        finally:
            file.close()

    def _columns(self, data: bytes) -> Block:
        first, second = zip(*self._entry.iter_unpack(data), strict=True)
        types = COLUMNS[self._entry]
        return array(types[0], first), array(types[1], second)


class SealedIndex:
    """Lookups in both indexes of one sealed segment. Offsets are relative to its base."""

    __slots__ = ("_offsets", "_times")

    def __init__(
        self, fs: FileSystem, offset_path: str, time_path: str, *, size: int, span: int
    ) -> None:
        """Open the index files of a segment with `size` bytes and offsets in [base, base + span).

        Raises:
            ValueError: the files do not fit such a segment.
            MissingFile: one of them is missing.
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
        """Returns a view of the indexes that never waits: a block not in memory raises NotCached."""
        same = copy(self)
        same._offsets, same._times = self._offsets.cached_only(), self._times.cached_only()
        return same

    def entry_at_or_before(self, relative_offset: RelativeOffset) -> Entry | None:
        """Returns the last entry up to an offset: the batch's last offset and its position."""
        return self._before(0, relative_offset + 1)

    def entry_up_to_position(self, position: Position) -> Entry | None:
        """Returns the last entry whose batch begins at or before `position`."""
        return self._before(1, position + 1)

    def entry_before_timestamp(self, timestamp: int) -> TimeEntry | None:
        """Returns the last entry older than `timestamp`: its time, and the last offset it covers."""
        found = self._times.count_below(0, timestamp)
        if not found:
            return None
        largest, covered = self._times[found - 1]
        return largest, RelativeOffset(covered)

    def _before(self, column: int, value: int) -> Entry | None:
        found = self._offsets.count_below(column, value)
        if not found:
            return None
        last_offset, position = self._offsets[found - 1]
        return RelativeOffset(last_offset), Position(position)

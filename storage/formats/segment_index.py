"""The two indexes of a segment, in Kafka's format.

    offset index entry := relative offset: int32 | position: int32        (big-endian)
    time index entry   := largest timestamp so far: int64 | relative offset: int32

An entry of the offset index says that the batch at `position` has that last offset; one of the time
index, that no record up to that offset is younger. Entries grow in every column, so a damaged file
is recognised and rebuilt. Both lists are in memory while the segment is active or was read recently.

Source: Apache Kafka, OffsetIndex.java, TimeIndex.java.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple, TypeAlias

from protocol.records.batch_tally import sound_offset_entries, sound_time_entries
from protocol.wire.numbers import Offset, Position, RelativeOffset

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
HIGH, LOW = (1, 0) if sys.byteorder == "little" else (0, 1)
"""The positions of the halves of a native int64."""


Entry: TypeAlias = tuple[RelativeOffset, Position]
"""An entry of the offset index: the last offset of a batch, and the batch's position."""

TimeEntry: TypeAlias = tuple[int, RelativeOffset]
"""An entry of the time index: a timestamp, and the last offset that it covers."""


class IndexMark(NamedTuple):
    """The number of entries of both indexes at some moment."""

    offset_entries: int
    time_entries: int


EMPTY_MARK = IndexMark(0, 0)


class SegmentIndex:
    """The index entries of one segment. Offsets are relative to the segment's base."""

    __slots__ = ("_offsets", "_positions", "_time_offsets", "_timestamps")

    def __init__(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")
        self._timestamps = array("q")
        self._time_offsets = array("i")

    def __len__(self) -> int:
        """The number of entries of the offset index."""
        return len(self._offsets)

    @property
    def file_bytes_max(self) -> int:
        """The size of the larger of the two files."""
        offsets = len(self._offsets) * OFFSET_ENTRY_BYTES
        times = len(self._timestamps) * TIME_ENTRY_BYTES
        return max(offsets, times)

    def add(
        self,
        last_offset: RelativeOffset,
        position: Position,
        timestamp_max: int,
        timestamp_offset: RelativeOffset,
    ) -> None:
        """Add the batch at `position`, and the largest timestamp before or in it."""
        self._offsets.append(last_offset)
        self._positions.append(position)
        if not self._timestamps or timestamp_max > self._timestamps[-1]:
            self._timestamps.append(timestamp_max)
            self._time_offsets.append(timestamp_offset)
        self._check_entries_grow()

    def _check_entries_grow(self) -> None:
        assert len(self._offsets) == len(self._positions)
        assert len(self._timestamps) == len(self._time_offsets)
        if len(self._offsets) > 1:
            assert self._offsets[-2] < self._offsets[-1]
            assert self._positions[-2] < self._positions[-1]

    def extend(self, columns: tuple[bytes, bytes, bytes, bytes]) -> None:
        """Add entries in the form that `protocol.records.batch_tally` makes."""
        lists = (self._offsets, self._positions, self._timestamps, self._time_offsets)
        for values, column in zip(lists, columns, strict=True):
            values.frombytes(column)
        self._check_entries_grow()

    @property
    def last_timestamp(self) -> int | None:
        """The largest timestamp in the time index; None if it has no entry."""
        return self._timestamps[-1] if self._timestamps else None

    def add_quadruples(self, entries: memoryview, base_offset: Offset) -> None:
        """Add entries in the form that the cleaner's kernel makes: four native int64s each."""
        # Not their kinds: calling those for each entry would take as long as adding it.
        numbers: Any = entries
        for at in range(0, len(entries), 4):
            last_offset, position, timestamp, timestamp_offset = numbers[at : at + 4]
            # Batches without any timestamp have -1 in place of the offset.
            timestamp_offset = max(timestamp_offset, base_offset)
            self.add(last_offset - base_offset, position, timestamp, timestamp_offset - base_offset)

    def entry_at_or_before(self, relative_offset: RelativeOffset) -> Entry | None:
        """Returns the last entry up to an offset: the batch's last offset and its position."""
        # Another thread may have added an offset and not yet its position.
        count = len(self._positions)
        return self._entry(bisect_right(self._offsets, relative_offset, 0, count) - 1)

    def entry_up_to_position(self, position: Position) -> Entry | None:
        """Returns the last entry whose batch begins at or before `position`."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, found: int) -> Entry | None:
        if found < 0:
            return None
        return RelativeOffset(self._offsets[found]), Position(self._positions[found])

    def entry_before_timestamp(self, timestamp: int) -> TimeEntry | None:
        """Returns the last entry older than `timestamp`: its time, and the last offset it covers."""
        found = bisect_left(self._timestamps, timestamp) - 1
        if found < 0:
            return None
        return self._timestamps[found], RelativeOffset(self._time_offsets[found])

    def truncate(self, relative_end_offset: RelativeOffset) -> None:
        """Remove the entries of batches that end at or past the offset."""
        kept = bisect_left(self._offsets, relative_end_offset)
        del self._offsets[kept:], self._positions[kept:]
        kept = bisect_left(self._time_offsets, relative_end_offset)
        del self._timestamps[kept:], self._time_offsets[kept:]

    @property
    def mark(self) -> IndexMark:
        """The number of entries now; both lists only grow, except in `truncate`."""
        return IndexMark(len(self._offsets), len(self._timestamps))

    def offset_file(self, start: int = 0, end: int | None = None) -> bytes:
        """Returns the bytes of entries [start, end) of the offset index file, of all by default."""
        return _interleaved(self._offsets[start:end], self._positions[start:end])

    def time_file(self, start: int = 0, end: int | None = None) -> bytes:
        """Returns the bytes of entries [start, end) of the time index file, of all by default."""
        halves = array("i", self._timestamps[start:end].tobytes())
        return _interleaved(halves[HIGH::2], halves[LOW::2], self._time_offsets[start:end])

    @classmethod
    def from_files(
        cls, offset_file: bytes, time_file: bytes, *, size: int, span: int
    ) -> SegmentIndex:
        """Decode both files of a segment with `size` bytes and offsets in [base, base + span).

        Raises:
            ValueError: the files do not fit such a segment.
        """
        if len(offset_file) % OFFSET_ENTRY_BYTES or len(time_file) % TIME_ENTRY_BYTES:
            raise ValueError("an index file ends inside an entry")
        index = cls._parsed(offset_file, time_file)
        if index._sound_part(size, span) != index.mark:
            raise ValueError("an index does not grow within its segment")
        return index

    @classmethod
    def from_longer_files(
        cls, offset_file: bytes, time_file: bytes, *, size: int, span: int
    ) -> SegmentIndex:
        """Decode the entries for the first `size` bytes and `span` offsets of a segment.

        Later entries were written after the recovery point and may be torn, so they are left out.
        """
        index = cls._parsed(offset_file, time_file)
        offset_entries, time_entries = index._sound_part(size, span)
        del index._offsets[offset_entries:], index._positions[offset_entries:]
        del index._timestamps[time_entries:], index._time_offsets[time_entries:]
        return index

    @classmethod
    def _parsed(cls, offset_file: bytes, time_file: bytes) -> SegmentIndex:
        index = cls()
        pairs = _words(offset_file, OFFSET_ENTRY_BYTES)
        index._offsets, index._positions = pairs[0::2], pairs[1::2]
        words = _words(time_file, TIME_ENTRY_BYTES)
        index._time_offsets = words[2::3]
        halves = array("i", bytes(8 * len(index._time_offsets)))
        halves[HIGH::2], halves[LOW::2] = words[0::3], words[1::3]
        index._timestamps = array("q", halves.tobytes())
        return index

    def _sound_part(self, size: int, span: int) -> IndexMark:
        """Returns the number of entries before the first one that does not fit such a segment."""
        return IndexMark(
            sound_offset_entries(self._offsets, self._positions, span=span, size=size),
            sound_time_entries(self._timestamps, self._time_offsets, span=span),
        )


def _words(data: bytes, entry_bytes: int) -> array[int]:
    """Returns the int32s of all whole entries of an index file."""
    return _native(array("i", data[: len(data) - len(data) % entry_bytes]))


def _native(values: array[int]) -> array[int]:
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _interleaved(*columns: array[int]) -> bytes:
    woven = array("i", bytes(4 * len(columns) * len(columns[0])))
    for number, column in enumerate(columns):
        woven[number :: len(columns)] = column
    return _native(woven).tobytes()

"""The two indexes of a segment, as Kafka writes them.

    offset index entry := relative offset: int32 | position: int32        (big-endian)
    time index entry   := largest timestamp so far: int64 | relative offset: int32

An entry of the offset index says that the batch at `position` has that last offset; one of the time
index, that no record up to that offset is younger. Entries grow in every column, so a damaged file
is recognised and rebuilt. Both lists live in memory while the segment is active or was read lately.

Source: Apache Kafka, OffsetIndex.java, TimeIndex.java.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


class SegmentIndex:
    """The index entries of one segment. Offsets are relative to the segment's base."""

    __slots__ = ("_offsets", "_positions", "_time_offsets", "_timestamps")

    def __init__(self) -> None:
        self._offsets = array("i")
        self._positions = array("i")
        self._timestamps = array("q")
        self._time_offsets = array("i")

    def __len__(self) -> int:
        """Entries of the offset index."""
        return len(self._offsets)

    @property
    def file_bytes_max(self) -> int:
        """The size of the larger of the two files."""
        return max(
            len(self._offsets) * OFFSET_ENTRY_BYTES, len(self._timestamps) * TIME_ENTRY_BYTES
        )

    def add(
        self, last_offset: int, position: int, timestamp_max: int, timestamp_offset: int
    ) -> None:
        """Note the batch at `position`, and the largest timestamp before or in it."""
        self._offsets.append(last_offset)
        self._positions.append(position)
        if not self._timestamps or timestamp_max > self._timestamps[-1]:
            self._timestamps.append(timestamp_max)
            self._time_offsets.append(timestamp_offset)

    def add_quadruples(self, entries: memoryview, base_offset: int) -> None:
        """Note entries as the cleaner's kernel makes them: four native int64s each."""
        for at in range(0, len(entries), 4):
            last_offset, position, timestamp, timestamp_offset = entries[at : at + 4]
            self.add(last_offset - base_offset, position, timestamp, timestamp_offset - base_offset)

    def entry_at_or_before(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry up to an offset: the batch's last offset and its position."""
        return self._entry(bisect_right(self._offsets, relative_offset) - 1)

    def entry_up_to_position(self, position: int) -> tuple[int, int] | None:
        """The last entry whose batch begins at or before `position`."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, found: int) -> tuple[int, int] | None:
        return (self._offsets[found], self._positions[found]) if found >= 0 else None

    def entry_before_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry older than `timestamp`: its time, and the last offset it speaks for."""
        found = bisect_left(self._timestamps, timestamp) - 1
        return (self._timestamps[found], self._time_offsets[found]) if found >= 0 else None

    def truncate(self, relative_end_offset: int) -> None:
        """Forget what concerns batches that end at or past the offset."""
        kept = bisect_left(self._offsets, relative_end_offset)
        del self._offsets[kept:], self._positions[kept:]
        kept = bisect_left(self._time_offsets, relative_end_offset)
        del self._timestamps[kept:], self._time_offsets[kept:]

    def offset_file(self) -> bytes:
        """The bytes of the offset index's file."""
        return _interleaved(self._offsets, self._positions)

    def time_file(self) -> bytes:
        """The bytes of the time index's file."""
        timestamps, offsets = _big_endian(self._timestamps), _big_endian(self._time_offsets)
        return b"".join(
            timestamps[8 * at : 8 * at + 8] + offsets[4 * at : 4 * at + 4]
            for at in range(len(self._timestamps))
        )

    @classmethod
    def from_files(
        cls, offset_file: bytes, time_file: bytes, *, size: int, span: int
    ) -> SegmentIndex:
        """Read both files of a segment with `size` bytes and offsets in [base, base + span).

        Raises:
            ValueError: the files cannot be those of such a segment.
        """
        if len(offset_file) % OFFSET_ENTRY_BYTES or len(time_file) % TIME_ENTRY_BYTES:
            raise ValueError("an index file ends inside an entry")
        index = cls()
        pairs = _native(array("i", offset_file))
        index._offsets, index._positions = pairs[0::2], pairs[1::2]
        words = _native(array("i", time_file))
        index._time_offsets = words[2::3]
        index._timestamps = array(
            "q",
            (
                int.from_bytes(time_file[at : at + 8], "big", signed=True)
                for at in range(0, len(time_file), TIME_ENTRY_BYTES)
            ),
        )
        index._check(size, span)
        return index

    def _check(self, size: int, span: int) -> None:
        grows = all(_grows(column) for column in (self._offsets, self._positions, self._timestamps))
        ends = (self._offsets[-1:], self._time_offsets[-1:])
        if not grows or any(end and not 0 <= end[0] < span for end in ends):
            raise ValueError("an index does not grow within its segment")
        if self._positions and not 0 <= self._positions[0] <= self._positions[-1] < size:
            raise ValueError("an index points outside its segment")


def _grows(column: Iterable[int]) -> bool:
    last: int | None = None
    for value in column:
        if last is not None and value <= last:
            return False
        last = value
    return True


def _native(values: array[int]) -> array[int]:
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _big_endian(values: array[int]) -> bytes:
    return _native(values[:]).tobytes()


def _interleaved(first: array[int], second: array[int]) -> bytes:
    woven = array("i", bytes(8 * len(first)))
    woven[0::2], woven[1::2] = first, second
    return _big_endian(woven)

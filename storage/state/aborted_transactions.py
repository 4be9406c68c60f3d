"""The aborted transactions of a log, whose records read_committed consumers skip.

    file := header{magic "KABT"} | row{count} | checksum          (storage/formats/row_file.py)
    row  := producer_id: int64 | first_offset: int64 | marker_offset: int64

All big-endian; rows are in the order of their markers. The file is written before each producer
snapshot, so the file and a scan of the log after the snapshot together give all aborted transactions.
When a marker is gone, its row goes too: a row that outlived its marker would make readers skip what the
producer commits later.

A reader of [offset, end) needs the rows whose marker is at or past `offset` and whose first offset is
below `end`. First offsets do not grow from row to row, so `_least` holds for each row the smallest first
offset of that row and all later ones, which does grow and can be bisected.
Source: Apache Kafka, TransactionIndex.java, AbortedTxn.java.
"""

from __future__ import annotations

import itertools
import struct
import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from protocol.wire.numbers import Offset, ProducerId
from storage.files.errors import DamagedFile
from storage.formats.row_file import RowFile
from storage.threads import any_thread

MAGIC = b"KABT"
ROW_BYTES = 24
FILE = RowFile(magic=MAGIC, format=1, row_bytes=ROW_BYTES, noun="transactions")

Row = tuple[ProducerId, Offset, Offset]
"""Producer id, first offset, the marker's offset."""


@any_thread
class AbortedTransactions:
    """The aborted transactions of one log. The loop's thread adds; workers forget and encode."""

    __slots__ = ("_first_offsets", "_least", "_lock", "_markers", "_producers", "forgotten")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        # Constant after construction
        self._lock = threading.Lock()
        # State, changed under the lock: columns of equal length; the last two grow.
        self._producers = array("q")
        self._first_offsets = array("q")
        self._markers = array("q")
        self._least = array("q")
        self.forgotten = 0
        """Grows whenever rows are removed at the front."""
        self.extend(rows)

    def __len__(self) -> int:
        return len(self._markers)

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of their markers."""
        with self._lock:
            rows: Any = zip(self._producers, self._first_offsets, self._markers, strict=True)
            return list(rows)

    def extend(self, rows: Iterable[Row]) -> None:
        """Add transactions whose markers are after all others."""
        with self._lock:
            for producer_id, first_offset, marker_offset in rows:
                self._producers.append(producer_id)
                self._first_offsets.append(first_offset)
                self._markers.append(marker_offset)
                self._least.append(first_offset)
                self._lower(len(self._least) - 1)
                self._check_markers_grow()

    def _check_markers_grow(self) -> None:
        count = len(self._markers)
        assert len(self._producers) == len(self._first_offsets) == len(self._least) == count
        assert count < 2 or self._markers[-2] < self._markers[-1]

    def _lower(self, number: int) -> None:
        """Lower the least offsets of the rows before `number` to at most its own."""
        first_offset = self._least[number]
        while number > 0 and self._least[number - 1] > first_offset:
            number -= 1
            self._least[number] = first_offset

    def between(self, offset: Offset, end_offset: Offset) -> list[tuple[ProducerId, Offset]]:
        """Returns producer and first offset of each transaction that concerns [offset, end_offset)."""
        if not self._markers or self._markers[-1] < offset:
            return []
        with self._lock:
            first = bisect_left(self._markers, offset)
            last = bisect_left(self._least, end_offset, lo=first)
            # Any: an array has plain ints, and there may be thousands of rows.
            found: Any = zip(
                self._producers[first:last], self._first_offsets[first:last], strict=True
            )
        return [each for each in found if each[1] < end_offset]

    def forget_below(self, offset: Offset) -> bool:
        """Forget the transactions with markers below `offset`. Returns whether there were any."""
        with self._lock:
            count = bisect_left(self._markers, offset)
            for column in (self._producers, self._first_offsets, self._markers, self._least):
                del column[:count]
            self.forgotten += count > 0
        return count > 0

    def below(self, offset: Offset) -> list[Row]:
        """Returns the transactions with markers below `offset`, which `forget_below` would forget."""
        with self._lock:
            count = bisect_left(self._markers, offset)
            columns = self._producers[:count], self._first_offsets[:count], self._markers[:count]
        rows: Any = zip(*columns, strict=True)
        return list(rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """Add forgotten transactions again, in any order; those that are there are left out.

        Holds the lock only for copies of memory: the loop's thread may be adding.
        """
        forgotten = sorted({row[2]: row for row in rows}.values(), key=_marker)
        producers, first_offsets, markers = (
            array("q", (row[number] for row in forgotten)) for number in range(3)
        )
        least = array("q", first_offsets)
        _lower_all(least)
        with self._lock:
            # Rows are forgotten from the front, so those from the first one on are there.
            count = bisect_left(markers, self._markers[0]) if self._markers else len(markers)
            if self._least:
                at = bisect_left(least, self._least[0], hi=count)
                least[at:count] = array("q", [self._least[0]]) * (count - at)
            self._producers[:0], self._first_offsets[:0] = producers[:count], first_offsets[:count]
            self._markers[:0], self._least[:0] = markers[:count], least[:count]

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Forget the transactions with markers from `end_offset` on. Returns whether there were any."""
        with self._lock:
            count = bisect_left(self._markers, end_offset)
            is_shorter = count < len(self._markers)
            for column in (self._producers, self._first_offsets, self._markers, self._least):
                del column[count:]
            if is_shorter:
                self._least[:] = self._first_offsets
                _lower_all(self._least)
        return is_shorter

    def encode(self) -> bytes:
        """Returns the bytes of the file."""
        with self._lock:
            rows = array("q", bytes(ROW_BYTES * len(self._markers)))
            rows[0::3], rows[1::3] = self._producers, self._first_offsets
            rows[2::3] = self._markers
        if sys.byteorder == "little":
            rows.byteswap()
        return FILE.encode(rows.tobytes())


def _marker(row: Row) -> Offset:
    return row[2]


def _lower_all(least: array[int]) -> None:
    """Lower each offset to the smallest of it and all later ones."""
    for number in range(len(least) - 1, 0, -1):
        least[number - 1] = min(least[number - 1], least[number])


def decode_aborted_transactions(data: bytes, path: str) -> AbortedTransactions:
    """Decode the file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: a later release wrote it.
        DamagedFile: it is cut short, its checksum differs, or it contradicts itself.
    """
    encoded, row_bytes = FILE.decode(data, path)
    rows: list[Row] = list(struct.iter_unpack(f">qqq{row_bytes - ROW_BYTES}x", encoded))
    if any(a[2] >= b[2] for a, b in itertools.pairwise(rows)):
        raise DamagedFile(path, "its markers are not in order")
    return AbortedTransactions(rows)

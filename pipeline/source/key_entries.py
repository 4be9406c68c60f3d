"""The entries of key blocks as Arrow columns, for Spark: 24 bytes each, without an object per record.

    high, low   int64: the halves of the key's hash; the log's number is mixed into `high`, so that the
                same key in two logs counts as two keys
    place       int64: number of the segment << 32 | number of the entry in it << 1 | 1 if it is dirty

Segments are numbered over all logs of a job, those of a log in offset order. So the largest place of a
key is its last record, and that place's lowest bit says whether the dirty section holds it. Only then
does it supersede the others, which is the rule of `cleaner/passes/mark.py`.

`storage/formats/key_sidecar.py` draws a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cleaner.rules.record_verdict import AbortedTransaction
from storage.formats.key_sidecar import HEAD, KeyBlock
from storage.formats.manifest import SegmentRow

SEGMENT_SHIFT = 32
ORDINAL_SHIFT = 1
ORDINAL_MASK = (1 << 31) - 1
SEGMENTS_MAX = 1 << 31
SCHEMA = "high bigint, low bigint, place bigint"

ENTRY = np.dtype([("high", ">i8"), ("low", ">i8"), ("offset", ">u4"), ("size", ">u4")])
SPECIAL = np.dtype(
    [
        ("first", ">u4"),
        ("last", ">u4"),
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("reserved", ">u4"),
    ]
)
OFFSET_DELTA_MASK = (1 << 31) - 1
TRANSACTIONAL, CONTROL = 1, 2
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedSegment:
    """A segment of a job, and the part of it that is in its log's pass."""

    log: int
    """The number of its log."""
    number: int
    """Its number over all logs."""
    row: SegmentRow
    start_offset: int
    """The first dirty offset of the log."""
    end_offset: int
    """The end offset of the pass."""
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions of the dirty section."""

    def __post_init__(self) -> None:
        assert 0 <= self.number < SEGMENTS_MAX


def key_entries(segment: NumberedSegment, blocks: Iterator[KeyBlock]) -> Iterator[pa.RecordBatch]:
    """Yields the entries below the pass's end that are not aborted, one batch per block."""
    ranges = _AbortedRanges(segment)
    for block in blocks:
        batch = _columns(segment, block, ranges)
        if batch.num_rows:
            yield batch


def _columns(segment: NumberedSegment, block: KeyBlock, ranges: _AbortedRanges) -> pa.RecordBatch:
    base_offset = segment.row.base_offset
    entries = np.frombuffer(block.data, ENTRY, block.entry_count, block.entries_at)
    deltas = entries["offset"].astype(np.int64) & OFFSET_DELTA_MASK
    is_dirty = deltas >= segment.start_offset - base_offset
    ordinals = np.arange(block.first_entry, block.first_entry + block.entry_count, dtype=np.int64)
    place = segment.number << SEGMENT_SHIFT | ordinals << ORDINAL_SHIFT | is_dirty
    columns = [
        entries["high"].astype(np.int64) ^ segment.log,
        entries["low"].astype(np.int64),
        place,
    ]
    counts = ranges.are_outside(block, deltas) & (deltas < segment.end_offset - base_offset)
    if not counts.all():
        columns = [column[counts] for column in columns]
    return pa.RecordBatch.from_arrays(
        [pa.array(column) for column in columns], names=["high", "low", "place"]
    )


class _AbortedRanges:
    """The aborted transactions of one segment's log, by producer and offset within the segment."""

    __slots__ = ("_ends", "_producers", "_starts")

    def __init__(self, segment: NumberedSegment) -> None:
        base_offset = segment.row.base_offset
        here = sorted(
            (each.producer_id, max(each.first_offset - base_offset, 0), each.marker_offset)
            for each in segment.aborted
            if each.marker_offset > base_offset and each.first_offset < segment.row.end_offset
        )
        self._producers = np.unique(np.array([each[0] for each in here], np.int64))
        numbers = np.searchsorted(self._producers, [each[0] for each in here]) << SEGMENT_SHIFT
        self._starts = numbers | np.array([each[1] for each in here], np.int64)
        ends = [min(each[2] - base_offset, OFFSET_DELTA_MASK + 1) for each in here]
        self._ends = numbers | np.array(ends, np.int64)

    def are_outside(self, block: KeyBlock, deltas: Array) -> Array:
        """Returns for each entry of a block whether its batch is not aborted. Offsets must not fall."""
        rows = np.frombuffer(block.data, SPECIAL, block.special_count, HEAD.size)
        rows = rows[self._are_aborted(rows)]
        if not len(rows):
            return np.ones(len(deltas), bool)
        at = np.searchsorted(rows["first"], deltas, "right") - 1
        return np.asarray((at < 0) | (rows["last"][at] < deltas))

    def _are_aborted(self, rows: Array) -> Array:
        """Returns, for each special row, whether it is data of an aborted transaction."""
        is_data = rows["flags"] & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
        if not len(self._producers) or not is_data.any():
            return np.zeros(len(rows), bool)
        producer_ids = rows["producer_id"].astype(np.int64)
        numbers = np.searchsorted(self._producers, producer_ids)
        numbers = np.minimum(numbers, len(self._producers) - 1)
        points = numbers << SEGMENT_SHIFT | rows["first"].astype(np.int64)
        at = np.searchsorted(self._starts, points, "right") - 1
        is_within = (at >= 0) & (points < self._ends[at]) & (points >= self._starts[at])
        return np.asarray(is_data & (self._producers[numbers] == producer_ids) & is_within)

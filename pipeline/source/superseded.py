"""Finds superseded records with Spark: takes entries of any number of keys, returns marks of segments.

It needs one shuffle by hash and one sort that spills to disk: an entry below the last one of its key is
superseded if that last one is dirty. (Joining the entries with the last offset of each key by `groupBy`
gives the same result for twice the CPU time, and has to read the entries twice.) Superseded entries are
shuffled once more, eight bytes each, to the task that makes the marks of their segment: a bit a record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cleaner.passes.mark import Marked
from cleaner.passes.memory import marks_bytes
from pipeline.source.key_entries import ORDINAL_MASK, ORDINAL_SHIFT, SEGMENT_SHIFT

MARKS_SCHEMA = "segment int, marks binary, superseded bigint"


def superseded(entries: DataFrame) -> DataFrame:
    """Returns the entries that a later one of their key supersedes, as `segment` and `ordinal`.

    Args:
        entries: see `pipeline/source/key_entries.py`.
    """
    last = F.max("place").over(Window.partitionBy("high", "low"))
    places = entries.select("place", last.alias("last")).where("place < last and last & 1 = 1")
    return places.select(
        F.shiftright("place", SEGMENT_SHIFT).cast("int").alias("segment"),
        F.shiftright("place", ORDINAL_SHIFT).bitwiseAND(ORDINAL_MASK).cast("int").alias("ordinal"),
    )


def marked(entries: DataFrame, counts: Mapping[int, int]) -> dict[int, Marked]:
    """Collect the marks of each segment on the driver, a bit a record.

    Args:
        counts: the number of entries in each segment's sidecar, whether or not they take part.
    """

    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _marks(batches, counts)

    by_segment = superseded(entries).repartition("segment")
    found = {
        row.segment: Marked(bytearray(row.marks), row.superseded)
        for row in map_in_arrow(by_segment, mark, MARKS_SCHEMA).collect()
    }
    none = (number for number in counts if number not in found)
    return found | {number: Marked(bytearray(marks_bytes(counts[number]))) for number in none}


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """Call `frame.mapInArrow` without its warning about pandas 3: no code here uses pandas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(function, schema)


def _marks(
    batches: Iterator[pa.RecordBatch], counts: Mapping[int, int]
) -> Iterator[pa.RecordBatch]:
    """Yields the complete marks of a task's segments: no other task has entries of these."""
    marks: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}
    superseded: dict[int, int] = {}
    for batch in batches:
        segments, ordinals = batch.column("segment").to_numpy(), batch.column("ordinal").to_numpy()
        for number in np.unique(segments).tolist():
            mine = ordinals[segments == number]
            bits = marks.setdefault(number, np.zeros(marks_bytes(counts[number]), np.uint8))
            np.bitwise_or.at(bits, mine >> 3, np.left_shift(1, mine & 7).astype(np.uint8))
            superseded[number] = superseded.get(number, 0) + len(mine)
    for number, bits in marks.items():
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([number], pa.int32()),
                pa.array([bits.tobytes()], pa.binary()),
                pa.array([superseded[number]], pa.int64()),
            ],
            names=["segment", "marks", "superseded"],
        )

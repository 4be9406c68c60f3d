"""The last records of a log: cut into parts, and read as Arrow columns.

    offsets of the last records (`cleaner/inspect/last_offsets.py`)  ->  parts  ->  rows

A part is what one data file holds. Its offsets say which rows it has, and what a record says never
changes, so a part with the same offsets has the same rows for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cleaner.rules.text import count_text
from pipeline.offsets.cut import TableRefused
from pipeline.source.cuts import cuts
from pipeline.source.read import RangeOfLog, record_batches
from storage.files.files import FileSystem
from storage.log.on_disk import LogOnDisk, SegmentOnDisk

PART_BYTES = 128 << 20
"""So many bytes of segments make a part: small segments together, large ones in pieces."""
ROWS_TARGET = 1 << 16

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""What is read of a record; `timestamp` as Spark counts it."""

Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class LogPart:
    """A range of a log, and the offsets of its last records."""

    range: RangeOfLog
    last: Offsets
    """In order. Those of tombstones are among them."""

    @property
    def size(self) -> int:
        """The bytes of its segments; of one in pieces, its share by offsets."""
        whole = sum(each.size for each in self.range.segments)
        first, end = self.range.segments[0].base_offset, self.range.segments[-1].end_offset
        share = (self.range.end_offset - self.range.first_offset) / max(end - first, 1)
        return round(whole * min(share, 1.0))

    def without(self, outranked: Offsets) -> LogPart:
        """Returns the part without the records at these offsets, which are in order."""
        return replace(self, last=np.setdiff1d(self.last, outranked, assume_unique=True))


def whole_range(log: LogOnDisk) -> RangeOfLog:
    """Returns the committed records of a log, up to its last stable offset."""
    return RangeOfLog(
        topic=log.identity.topic_partition.topic,
        partition=log.identity.topic_partition.partition,
        directory=log.identity.directory,
        first_offset=log.log_start_offset,
        end_offset=log.last_stable_offset,
        segments=log.segments,
        aborted=log.aborted,
    )


def parts_of(
    fs: FileSystem, log: LogOnDisk, last: Offsets, *, part_bytes: int = PART_BYTES
) -> Iterator[LogPart]:
    """Yields the parts of a log that have last records.

    Args:
        last: the offsets of all last records, in order.
    """
    whole = whole_range(log)
    for first, end, segments in _cuts(fs, log, part_bytes):
        first, end = max(first, whole.first_offset), min(end, whole.end_offset)
        here = last[np.searchsorted(last, first) : np.searchsorted(last, end)]
        if len(here):
            held = tuple(each for each in segments if _has_any(here, each))
            aborted = tuple(row for row in whole.aborted if row[1] < end and row[2] >= first)
            yield LogPart(
                replace(whole, first_offset=first, end_offset=end, segments=held, aborted=aborted),
                here,
            )


def _cuts(
    fs: FileSystem, log: LogOnDisk, part_bytes: int
) -> Iterator[tuple[int, int, tuple[SegmentOnDisk, ...]]]:
    """Yields where a log is cut: what is clean, dirty and active apart, because these change apart."""
    *sealed, active = log.segments
    clean = [each for each in sealed if each.end_offset <= log.clean_offset]
    for segments in (clean, sealed[len(clean) :], [active]):
        yield from cuts(fs, log, segments, part_bytes)


def _has_any(last: Offsets, segment: SegmentOnDisk) -> bool:
    first, end = np.searchsorted(last, (segment.base_offset, segment.end_offset))
    return bool(first < end)


def last_records(fs: FileSystem, part: LogPart) -> Iterator[pa.RecordBatch]:
    """Yields the last records of a part as `COLUMNS`, in offset order.

    Raises:
        TableRefused: a record is missing. The segments were held open, so the keys of a sidecar are
            not those of its segment.
        CorruptLog: bytes of a segment are damaged; the message has the file and the position.
        DiskError: a file cannot be read.
    """
    missing = len(part.last)
    for batch in record_batches(fs, part.range, COLUMNS, rows_target=ROWS_TARGET):
        wanted = _are_last(batch.column("offset").to_numpy(), part.last)
        found = int(np.count_nonzero(wanted))
        missing -= found
        if found:
            yield batch if found == len(batch) else batch.filter(pa.array(wanted))
    if missing:
        place = f"{part.range.topic}-{part.range.partition}"
        raise TableRefused(
            f"{place}, offsets [{part.range.first_offset}, {part.range.end_offset}): "
            f"{count_text(missing, 'record')} missing that a key sidecar names: check it with"
            " `kompakt dump-log --verify --keys`"
        )


def _are_last(offsets: Offsets, last: Offsets) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Returns for each offset whether it is one of the last ones; both are in order."""
    first, end = np.searchsorted(last, offsets[0]), np.searchsorted(last, offsets[-1], "right")
    here = last[first:end]
    places = np.searchsorted(offsets, here)
    are_last = np.zeros(len(offsets), bool)
    are_last[places[offsets[places] == here]] = True
    return are_last


def first_unkeyed(fs: FileSystem, log: LogOnDisk) -> int | None:
    """Returns the offset of a log's first committed record without a key; None if it has none."""
    schema = pa.schema([COLUMNS.field("key"), COLUMNS.field("offset")])
    for batch in record_batches(fs, whole_range(log), schema, rows_target=ROWS_TARGET):
        if batch.column("key").null_count:
            at = batch.column("key").is_null().index(True).as_py()
            return int(batch.column("offset")[at].as_py())
    return None

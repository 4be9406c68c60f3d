"""The last records of a log from an offset on, as batches for a reader of its view.

    offset -> segment -> chunk -> filter by the table of the keys -> batches, and how far they reach

docs/design/views.md says what a reader gets by that.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from cleaner.kernel.kernel import LatestFilter
from cleaner.lookup.key_table import KeyTable
from cleaner.lookup.last_records import READ_ATTEMPTS, OutdatedTable
from cleaner.lookup.spilled_filter import SpilledFilter
from cleaner.rules.step import LatestStep
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset
from storage.files.errors import SegmentRemoved
from storage.log.log import PartitionLog
from storage.segment.lookup import position_before
from storage.segment.reader import first_segment_past
from storage.segment.segment import Segment

CHUNK_BYTES = 1 << 20
SCANNED_BYTES_MAX = 8 << 20
"""So much of the log is read for one answer at most, if little of it is the last of its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestBatches:
    """The last records of their keys in a part of a log."""

    records: tuple[bytes | memoryview, ...]
    """Whole batches, in pieces. The first may begin below the offset that was asked for."""
    size: int
    """The bytes of the records."""
    records_end: Offset
    """The offset after the last of these batches; the offset that was asked for if there is none."""
    end_offset: Offset
    """Where the part ends: there is no other last record below."""
    scanned_bytes: int
    """So much of the log was read."""


def latest_batches(
    log: PartitionLog,
    offset: Offset,
    table: KeyTable,
    *,
    bytes_max: int,
    whole_first_batch: bool,
    with_tombstones: bool,
    decompressed_bytes_max: int,
) -> LatestBatches:
    """Returns the last records from an offset on, up to the table's end. For a worker thread.

    Args:
        bytes_max: of batches; with `whole_first_batch` the first one may be larger (KIP-74).
        with_tombstones: whether deleted keys are among them.

    Raises:
        OutdatedTable: see there.
        CorruptBatch, DecompressionTooLarge, CorruptLog: the log is damaged.
        SegmentRemoved, DiskError: as `record_at`.
    """
    _check_is_current(log, table)
    part = _Part(
        offset,
        table.latest_filter(
            offset,
            decompressed_bytes_max=decompressed_bytes_max,
            codec_levels=log.config.codec_levels,
            with_tombstones=with_tombstones,
        ),
        end_offset=table.end_offset,
        bytes_max=bytes_max,
        whole_first_batch=whole_first_batch,
    )
    for attempt in range(READ_ATTEMPTS):
        try:
            part.read(log)
            break
        except SegmentRemoved:  # A pass has replaced it meanwhile.
            if attempt + 1 == READ_ATTEMPTS:
                raise
    _check_is_current(log, table)
    return LatestBatches(
        records=tuple(part.records),
        size=part.size,
        records_end=part.records_end,
        end_offset=part.at,
        scanned_bytes=part.scanned_bytes,
    )


def _check_is_current(log: PartitionLog, table: KeyTable) -> None:
    """Raise OutdatedTable if a pass may have dropped a tombstone that still outranks other records."""
    if not table.is_current(log):
        raise OutdatedTable


class _Part:
    """The part of a log that has been read so far. It can continue after an error of a read."""

    __slots__ = (
        "_bytes_max", "_end_offset", "_filter", "_whole_first_batch", "at", "is_full", "records",
        "records_end", "scanned_bytes", "size",
    )  # fmt: skip

    def __init__(
        self,
        offset: Offset,
        filter_: LatestFilter | SpilledFilter,
        *,
        end_offset: Offset,
        bytes_max: int,
        whole_first_batch: bool,
    ) -> None:
        # Constant after construction.
        self._filter = filter_
        self._end_offset = end_offset
        self._bytes_max = bytes_max
        self._whole_first_batch = whole_first_batch
        # State.
        self.at = offset
        """The part ends here."""
        self.records: list[bytes | memoryview] = []
        self.size = 0
        self.records_end = offset
        self.scanned_bytes = 0
        self.is_full = False

    def read(self, log: PartitionLog) -> None:
        """Read on until the end offset, or until there is enough. Raises as `latest_batches`."""
        segments = log.segments
        for number in range(first_segment_past(segments, self.at), len(segments)):
            segment = segments[number]
            if segment.base_offset >= self._end_offset or self.is_full:
                break
            self._read_segment(segment)
        if not self.is_full:
            self.at = max(self.at, self._end_offset)

    def _read_segment(self, segment: Segment) -> None:
        # The end before the size: what is appended in between lies beyond the end.
        end_offset, size = segment.end_offset, segment.size
        with closing(self._steps(segment, size)) as steps:
            for step in steps:
                self._take(step)
                if step.is_end:
                    self.at = self._end_offset
                    return
                if step.is_full or self._has_enough:
                    self.is_full = True
                    return
        self.at = max(self.at, end_offset)

    def _take(self, step: LatestStep) -> None:
        if step.records:
            self.records.append(step.output)
            self.size += len(step.output)
            self.records_end = Offset(step.last_kept_offset + 1)
        self.at = max(self.at, Offset(self._filter.next_offset))

    @property
    def _has_enough(self) -> bool:
        return self.size >= self._bytes_max or self.scanned_bytes >= SCANNED_BYTES_MAX

    def _steps(self, segment: Segment, size: int) -> Generator[LatestStep, None, None]:
        """Read a segment from where the part ends, and yield what the filter says of each chunk."""
        wanted = CHUNK_BYTES
        with segment.reading(cached_only=False) as reads:
            position = 0
            if self.at > segment.base_offset:
                position = position_before(segment, self.at, reads)
            while position < size:
                chunk = reads.read_at(position, min(wanted, size - position))
                if len(chunk) < min(wanted, size - position):
                    raise CorruptBatch(f"{segment} ends early")
                step = self._filter.feed(
                    chunk,
                    end_offset=self._end_offset,
                    output_bytes_max=self._bytes_max - self.size,
                    whole_first_batch=self._whole_first_batch and not self.records,
                    position=position,
                )
                self.scanned_bytes += step.consumed_bytes
                position += step.consumed_bytes
                if step.needed_bytes > size - position:
                    raise CorruptBatch(f"{segment} ends inside the batch at position {position}")
                wanted = max(CHUNK_BYTES, step.needed_bytes)
                yield step

"""Reads a range of a partition's offsets from its segment files, as Arrow record batches.

A task's plan names the segments of an earlier manifest. If the broker has replaced one of them
meanwhile, the reader looks up the segments for the rest of the range in the current manifest: offsets
never change, and cleaning keeps the last record of each key, so the range holds what a consumer would
now receive. An open file stays readable when it is renamed or unlinked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from protocol.records.batch_header import HEADER_BYTES
from protocol.records.record_columns import BinaryColumn, ColumnBuffer, Columns, RecordColumns
from protocol.wire.errors import CorruptBatch
from protocol.wire.numbers import Offset, Position, RelativeOffset
from storage.batches.walk import PLACE
from storage.files.errors import CorruptLog, MissingFile
from storage.files.files import File, FileSystem
from storage.files.paths import LOG, MANIFEST, OFFSET_INDEX, TIME_INDEX, join, segment_file
from storage.formats.manifest import UNKNOWN, Manifest, decode
from storage.log.on_disk import SegmentOnDisk
from storage.segment.listed_file import open_listed
from storage.segment.sealed_index import SealedIndex

CHUNK_BYTES = 1 << 20
"""Small enough to stay in the processor's cache between the read and the checksum."""
ROWS_TARGET = 1 << 14
"""Small enough that a batch reuses the memory of the one before: fresh pages cost more than the work."""
LOOKS_MAX = 16
"""Bound on reads of the manifest without a record read in between."""


class OffsetsGone(Exception):
    """Planned offsets are no longer in the log. The message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOfLog:
    """The part of one partition to read; a value that travels to another process."""

    topic: str
    partition: int
    directory: str
    first_offset: int
    end_offset: int
    segments: tuple[SegmentOnDisk, ...]
    """The segments that covered it at the time of the plan."""
    first_timestamp: int = -(1 << 63)
    end_timestamp: int = (1 << 63) - 1
    """Milliseconds; records outside [first, end) are left out."""
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Producer id, first offset, marker's offset of transactions whose records are left out."""
    fail_on_data_loss: bool = True


def record_batches(
    fs: FileSystem,
    wanted: RangeOfLog,
    schema: Any,
    *,
    rows_target: int = ROWS_TARGET,
    with_markers: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a range, in offset order.

    Args:
        schema: Arrow schema with some of the columns of Spark's Kafka source.
        rows_target: approximate bound on the rows of a batch.
        with_markers: records of control batches also become rows.

    Raises:
        CorruptLog: bytes of a segment are damaged; the message has the file and the position.
        OffsetsGone: records of the range were deleted meanwhile, and the options make that an error.
        DiskError: a file cannot be read.
    """
    columns = RecordColumns(
        first_offset=wanted.first_offset,
        end_offset=wanted.end_offset,
        first_timestamp=wanted.first_timestamp,
        end_timestamp=wanted.end_timestamp,
        aborted=wanted.aborted,
        with_key="key" in schema.names,
        with_value="value" in schema.names,
        with_headers="headers" in schema.names,
        with_markers=with_markers,
        rows_target=rows_target,
    )
    for _ in _RangeReader(fs, wanted, columns).read():
        if columns.is_full:
            yield arrow_batch(columns.take(), schema, wanted.topic, wanted.partition)
    if len(columns):
        yield arrow_batch(columns.take(), schema, wanted.topic, wanted.partition)


class _RangeReader:
    """Feeds the segments of a range, from their current files."""

    def __init__(self, fs: FileSystem, wanted: RangeOfLog, columns: RecordColumns) -> None:
        # Constant after construction
        self._fs = fs
        self._wanted = wanted
        self._columns = columns
        # State
        self._first_offset = wanted.first_offset
        self._buffer = memoryview(bytearray(CHUNK_BYTES))

    def read(self) -> Iterator[None]:
        """Feed the whole range. Yields whenever the caller may have to take rows."""
        segments, looks = list(self._wanted.segments), 0
        while segments and not self._columns.is_done:
            segment = segments[0]
            try:
                file = open_listed(self._fs, self._wanted.directory, segment, LOG)
            except MissingFile:
                if looks == LOOKS_MAX:
                    raise
                segments, looks = self._listed_now(), looks + 1
                continue
            try:
                yield from self._feed(file, segment)
            finally:
                file.close()
            segments, looks = segments[1:], 0

    def _next_offset(self) -> int:
        """The offset at which the range continues."""
        return max(self._first_offset, self._columns.next_offset)

    def _feed(self, file: File, segment: SegmentOnDisk) -> Iterator[None]:
        """Feed one segment; the active one only as far as the range goes."""
        columns = self._columns
        columns.begin_file(self._first_offset)
        position = self._start_position(file, segment)
        size = segment.size if segment.size != UNKNOWN else file.size
        while position < size and not columns.is_done:
            self._make_room(columns.needed_bytes)
            room = self._buffer[: min(len(self._buffer), size - position)]
            chunk = room[: file.read_into(position, room)]
            taken = self._feed_chunk(file, chunk, position)
            position += taken
            yield
            is_cut = len(chunk) < len(room) and not taken
            if is_cut or columns.needed_bytes > size - position:
                break
        self._check_is_end(file, segment, position)

    def _make_room(self, size: int) -> None:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))

    def _feed_chunk(self, file: File, chunk: memoryview, position: int) -> int:
        try:
            return self._columns.feed(chunk, position=position)
        except CorruptBatch as error:
            raise CorruptLog(file.path, position, str(error)) from error

    def _check_is_end(self, file: File, segment: SegmentOnDisk, position: int) -> None:
        """Check that a file ends where it must: everything that was in the log at the plan is there."""
        columns = self._columns
        if columns.is_done:
            self._check_is_beyond(file, segment, position)
            return
        if columns.next_offset >= self._wanted.end_offset:
            return
        if segment.size == UNKNOWN or position < segment.size:
            raise CorruptLog(
                file.path,
                position,
                f"no whole batch is left, but the log went up to offset {self._wanted.end_offset}"
                " when this was planned",
            )

    def _check_is_beyond(self, file: File, segment: SegmentOnDisk, position: int) -> None:
        """Check that the batch that ended the range fits its segment: no checksum covers its offset."""
        found = int.from_bytes(file.read_at(position, 8))
        if position < segment.size and found >= segment.end_offset:
            raise CorruptLog(
                file.path,
                position,
                f"a batch begins with offset {found}, and the segment ends at {segment.end_offset}",
            )

    def _start_position(self, file: File, segment: SegmentOnDisk) -> int:
        """Returns the start position in a file: by its index if the batch there agrees, else 0."""
        first = self._next_offset()
        if first <= segment.base_offset:
            return 0
        entry = index_entry(self._fs, self._wanted.directory, segment, offset=first)
        return entry[1] if entry is not None and _is_batch(file, segment, *entry) else 0

    def _listed_now(self) -> list[SegmentOnDisk]:
        """Returns the segments that now cover the rest of the range."""
        wanted, path = self._wanted, join(self._wanted.directory, MANIFEST)
        try:
            manifest = decode(self._fs.read_bytes(path), path)
        except MissingFile as error:
            raise OffsetsGone(f"{wanted.directory} was deleted while it was read") from error
        first = self._next_offset()
        if first < manifest.log_start_offset and wanted.fail_on_data_loss:
            raise OffsetsGone(
                f"partition {wanted.partition} of {wanted.topic}: offsets"
                f" [{first}, {manifest.log_start_offset}) were deleted while they were read;"
                " failOnDataLoss=false skips them"
            )
        self._first_offset = max(first, manifest.log_start_offset)
        return _covering(manifest, self._first_offset, Offset(wanted.end_offset))


def _covering(manifest: Manifest, first: int, end: Offset) -> list[SegmentOnDisk]:
    rows = manifest.segments
    return [
        SegmentOnDisk(
            base_offset=row.base_offset,
            file_version=row.file_version,
            end_offset=row.end_offset if row is not rows[-1] else end,
            size=row.size if row is not rows[-1] else UNKNOWN,
            max_timestamp=row.max_timestamp,
        )
        for row in rows
        if row.base_offset < end and (row is rows[-1] or row.end_offset > first)
    ]


def index_entry(
    fs: FileSystem,
    directory: str,
    segment: SegmentOnDisk,
    *,
    offset: int | None = None,
    position: int | None = None,
) -> tuple[int, int] | None:
    """Returns the index entry at or before an offset or a position: relative last offset, and position.

    None if there is none, or if the index is missing or cannot be the segment's. An entry is a hint:
    check that the batch at its position agrees.
    """
    names = [segment_file(segment.base_offset, segment.file_version, kind) for kind in
             (OFFSET_INDEX, TIME_INDEX)]  # fmt: skip
    span = max(segment.end_offset - segment.base_offset, 1)
    try:
        index = SealedIndex(fs, *(join(directory, name) for name in names),
                            size=max(segment.size, 1), span=span)  # fmt: skip
        if offset is not None:
            return index.entry_at_or_before(RelativeOffset(offset - segment.base_offset))
        assert position is not None
        return index.entry_up_to_position(Position(position))
    except (MissingFile, ValueError):
        return None


def _is_batch(file: File, segment: SegmentOnDisk, relative_last: int, position: int) -> bool:
    data = file.read_at(position, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return False
    base_offset, _, _, last_delta, *_ = PLACE.unpack(data)
    return bool(base_offset + last_delta == segment.base_offset + relative_last)


def arrow_batch(columns: Columns, schema: Any, topic: str, partition: int) -> pa.RecordBatch:
    """Combine buffers into the columns of an Arrow schema, without copying."""
    count = len(columns)
    made = {
        "key": lambda kind: _strings(kind, columns.key),
        "value": lambda kind: _strings(kind, columns.value),
        "topic": lambda kind: pa.repeat(pa.scalar(topic, kind), count),
        "partition": lambda kind: pa.repeat(pa.scalar(partition, kind), count),
        "offset": lambda kind: _numbers(kind, columns.offset, count),
        "timestamp": lambda kind: _numbers(kind, columns.timestamp, count),
        "timestampType": lambda kind: _numbers(kind, columns.timestamp_type, count),
        "headers": lambda kind: _headers(kind, columns),
    }
    arrays = [made[field.name](field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _numbers(kind: Any, buffer: ColumnBuffer, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def _strings(kind: Any, column: BinaryColumn | None) -> pa.Array:
    assert column is not None
    buffers = [column.validity, column.offsets, column.data]
    return pa.Array.from_buffers(
        kind, len(column), [pa.py_buffer(each) for each in buffers], column.null_count
    )


def _headers(kind: Any, columns: Columns) -> pa.Array:
    names = _strings(kind.value_type.field(0).type, columns.header_names)
    values = _strings(kind.value_type.field(1).type, columns.header_values)
    entries = pa.Array.from_buffers(
        kind.value_type, len(names), [None], 0, children=[names, values]
    )
    buffers = [pa.py_buffer(columns.headers_validity), pa.py_buffer(columns.headers_offsets)]
    return pa.Array.from_buffers(
        kind, len(columns), buffers, columns.headers_null_count, children=[entries]
    )

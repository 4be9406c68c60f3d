"""The manifest: the list of a log's segments. It is authoritative; names and headers are the backup.

    manifest := header | row{segment_count} | checksum

    header :=  magic: byte[4] = "KMAN" | format: uint16 | header_size: uint16 | row_size: uint16
               | flags: uint16 | version: int64 | generation: int64 | topic_id: byte[16]
               | partition: int32 | segment_count: int32 | log_start_offset: int64
               | clean_offset: int64 | truncate_to: int64
               | copy_id: byte[16], only if a copy has replaced the log, or with the next
               | copied_from: byte[16], only if it is known
    row    :=  base_offset: int64 | file_version: int64 | flags: int32 | control_count: int32
               | end_offset: int64 | size: int64 | max_timestamp: int64
               | offset_of_max_timestamp: int64 | created_ms: int64 | first_append_ms: int64
               | last_append_ms: int64 | record_count: int64 | tombstone_count: int64
               | least_delete_horizon_ms: int64
               | tombstone_bytes: int64 | tombstones_due_ms: int64, both only if a row has one of them
    checksum := xxh3-64 of all before it: uint64

`control_count` is stored plus one, so that the zero of an earlier release says that it is unknown.

All big-endian. A later release may lengthen header and rows at their ends: a reader takes the sizes
from the file and skips what it does not know. `format` changes only if an older reader would misread
the file. Rows are in offset order; the last one is the active segment. Its end, size and other values
are those of the last checkpoint or clean stop, or -1 if there was none since the segment was created.
The recovery point is that end, or else the base offset: everything below it, with its index entries,
was synced before the manifest was written. The file may be longer.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

import xxhash

from protocol.wire.numbers import Offset
from storage.files.errors import DamagedFile, FormatFromTheFuture

MAGIC = b"KMAN"
FORMAT = 1
FORMAT_WITH_FOREIGN_STATES = 2
"""A reader that does not know `FLAG_FOREIGN_STATES` would pair segments and states of two logs."""
UNKNOWN = -1
UNKNOWN_OFFSET = Offset(UNKNOWN)
NO_ID = uuid.UUID(int=0)

HEADER = struct.Struct(
    ">"
    "4s"  # magic
    "H"  # format
    "H"  # header size
    "H"  # row size
    "H"  # flags
    "q"  # version
    "q"  # generation
    "16s"  # topic id
    "i"  # partition
    "i"  # segment count
    "q"  # log start offset
    "q"  # clean offset
    "q"  # truncate to
)
COPY_ID = struct.Struct(">16s")
"""Follows the header of a log that a copy has replaced. Zeros: none."""
COPIED_FROM = struct.Struct(">16s")
"""Follows the copy id of a log whose records are known to be another broker's."""
ROW = struct.Struct(
    ">"
    "q"  # base offset
    "q"  # file version
    "i"  # flags
    "i"  # control count + 1
    "q"  # end offset
    "q"  # size
    "q"  # largest timestamp
    "q"  # its offset
    "q"  # created
    "q"  # first append
    "q"  # last append
    "q"  # record count
    "q"  # tombstone count
    "q"  # least delete horizon
)
TOMBSTONES = struct.Struct(
    ">"
    "q"  # tombstone bytes
    "q"  # when all are due
)
"""Follows each row, if a pass of this release has counted the tombstones of a segment. An earlier
release skips it, and its own manifests do not have it."""
CHECKSUM = struct.Struct(">Q")
PREFIX = struct.Struct(">4sHHH")

# On disk: values never change.
FLAG_CLEANED = 1
"""The segment was written by the cleaner: offsets inside it may have holes."""
FLAG_HAS_ABORTED = 1
"""In the header: the log has a file of aborted transactions."""
FLAG_UNFINISHED_PASS = 2
"""In the header: a cleaning pass has swapped segments and not moved the clean offset to its end."""

FLAG_HISTORY = 8
"""In the header: below the clean offset, keys may have older values beside their last one."""
FLAG_FOREIGN_STATES = 4
"""In the header: the files of epochs, producers and aborted transactions are those of another log, which
this one has just replaced. Only the segments count. Then the format is 2."""
FLAG_UNDO_FILE = 16
"""In the header: the undo file (`storage/undo/undo_file.py`) holds; without the flag it does not."""

assert HEADER.size == 76
assert ROW.size == 104


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A segment's entry in the manifest. -1 (`UNKNOWN`) stands for an unknown value."""

    base_offset: Offset
    """The first offset that the segment may hold, and its file's name. Offsets are [base, end)."""
    file_version: int
    """A number that makes the file's name unique within its log; never used twice."""
    flags: int = 0
    end_offset: Offset = UNKNOWN_OFFSET
    """The offset after the last one that the segment covers. For the active segment, the offset up to
    which the last checkpoint made it safe; -1 if there was none."""
    size: int = UNKNOWN
    """The size of the segment file up to `end_offset`, in bytes."""
    max_timestamp: int = UNKNOWN
    offset_of_max_timestamp: Offset = UNKNOWN_OFFSET
    """The last offset of the first batch that holds the largest timestamp."""
    created_ms: int = UNKNOWN
    """The wall time when the file was created."""
    first_append_ms: int = UNKNOWN
    """The wall time of the first append, from which `segment.ms` and the lags count."""
    last_append_ms: int = UNKNOWN
    """The wall time of the last append; a cleaned segment has that of its sources."""
    record_count: int = UNKNOWN
    """With the records of control batches; an upper bound if `control_count` is unknown."""
    control_count: int = UNKNOWN
    """How many of its records are in control batches, which no consumer sees. -1 in rows that an earlier
    release has written; the count of records may then be that before a truncation."""
    tombstone_count: int = UNKNOWN
    """-1 until the cleaner has counted them."""
    least_delete_horizon_ms: int = UNKNOWN
    """The earliest delete horizon that something in the segment waits for; -1 if nothing does, or
    if it is unknown. A batch whose tombstones are gone still has a horizon, but nothing waits for it."""
    tombstone_bytes: int = UNKNOWN
    """The encoded, uncompressed size of its tombstones; -1 until the cleaner has counted it."""
    tombstones_due_ms: int = UNKNOWN
    """The latest delete horizon of a tombstone; 2^63 - 1 if one has none yet; -1 if there is none, or if
    it is unknown."""

    @property
    def is_cleaned(self) -> bool:
        """Whether the cleaner wrote the segment."""
        return bool(self.flags & FLAG_CLEANED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One committed state of a log's segment list."""

    version: int
    """Grows with every commit and every new file of the log."""
    generation: int
    """Grows when a pass planned before must not commit: truncation, deletion, policy change."""
    topic_id: uuid.UUID
    partition: int
    log_start_offset: Offset
    clean_offset: Offset
    """The first dirty offset: a finished cleaning pass has seen every record below it."""
    truncate_to: Offset = UNKNOWN_OFFSET
    """The end offset of a truncation that has begun; -1 if there is none to finish."""
    has_aborted_file: bool = False
    """Whether a file of aborted transactions was written; then it must exist."""
    has_unfinished_pass: bool = False
    """Whether a cleaning pass has swapped segments since the clean offset last moved: records below that
    may be gone because of records above it."""
    has_history: bool = False
    """Whether keys may have older values below the clean offset, because a pass has kept them. A release
    that does not know the flag drops it; then only passes over newer records of a key remove them."""
    has_foreign_states: bool = False
    """Whether the files of epochs, producers and aborted transactions are those of another log."""
    has_undo_file: bool = False
    """Whether the undo file holds: it names segments that were replaced and are kept. A release that
    does not know the flag drops it, and removes these segments."""
    copy_id: uuid.UUID | None = None
    """The id of the last copy that has replaced the log's records; None if none has."""
    copied_from: uuid.UUID | None = None
    """Names the source that is known to have had all records that are here; None if none is known. A
    release that does not know the field drops it, which is safe."""
    segments: tuple[SegmentRow, ...]

    def sound_clean_offset(self, end_offset: Offset) -> Offset:
        """Returns the clean offset of a log that ends at `end_offset`, or its start if that is outside.

        A clean offset outside the log cannot be trusted, and cleaning too much costs only time.
        Source: Apache Kafka, LogCleanerManager.cleanableOffsets.
        """
        is_inside = self.log_start_offset <= self.clean_offset <= end_offset
        return self.clean_offset if is_inside else self.log_start_offset


def encode(manifest: Manifest) -> bytes:
    """Returns the bytes of a manifest file."""
    ids = b""
    if manifest.copy_id is not None or manifest.copied_from is not None:
        ids = COPY_ID.pack((manifest.copy_id or NO_ID).bytes)
    if manifest.copied_from is not None:
        ids += COPIED_FROM.pack(manifest.copied_from.bytes)
    counts_tombstones = any(map(_counts_tombstones, manifest.segments))
    body = bytearray(
        HEADER.pack(
            MAGIC,
            FORMAT_WITH_FOREIGN_STATES if manifest.has_foreign_states else FORMAT,
            HEADER.size + len(ids),
            ROW.size + TOMBSTONES.size * counts_tombstones,
            FLAG_HAS_ABORTED * manifest.has_aborted_file
            | FLAG_UNFINISHED_PASS * manifest.has_unfinished_pass
            | FLAG_HISTORY * manifest.has_history
            | FLAG_FOREIGN_STATES * manifest.has_foreign_states
            | FLAG_UNDO_FILE * manifest.has_undo_file,
            manifest.version,
            manifest.generation,
            manifest.topic_id.bytes,
            manifest.partition,
            len(manifest.segments),
            manifest.log_start_offset,
            manifest.clean_offset,
            manifest.truncate_to,
        )
    )
    body += ids
    for row in manifest.segments:
        body += encode_row(row, counts_tombstones=counts_tombstones)
    return bytes(body + CHECKSUM.pack(xxhash.xxh3_64_intdigest(body)))


def decode(data: bytes, path: str) -> Manifest:
    """Decode a manifest file; `path` is for messages only.

    Raises:
        FormatFromTheFuture: a later release wrote it in a format that this one cannot read.
        DamagedFile: it is cut short, its checksum differs, or it contradicts itself.
    """
    header_size, row_size = _check_frame(data, path)
    (
        _magic,
        _format,
        _header_size,
        _row_size,
        flags,
        version,
        generation,
        topic_id,
        partition,
        segment_count,
        log_start_offset,
        clean_offset,
        truncate_to,
    ) = HEADER.unpack_from(data)
    if len(data) != header_size + segment_count * row_size + CHECKSUM.size:
        raise DamagedFile(path, f"{len(data)} bytes do not hold {segment_count} segments")
    return Manifest(
        version=version,
        generation=generation,
        topic_id=uuid.UUID(bytes=topic_id),
        partition=partition,
        log_start_offset=log_start_offset,
        clean_offset=clean_offset,
        truncate_to=truncate_to,
        has_aborted_file=bool(flags & FLAG_HAS_ABORTED),
        has_unfinished_pass=bool(flags & FLAG_UNFINISHED_PASS),
        has_history=bool(flags & FLAG_HISTORY),
        has_foreign_states=bool(flags & FLAG_FOREIGN_STATES),
        has_undo_file=bool(flags & FLAG_UNDO_FILE),
        copy_id=_id_at(data, HEADER.size, header_size),
        copied_from=_id_at(data, HEADER.size + COPY_ID.size, header_size),
        segments=tuple(
            decode_row(data, header_size + index * row_size, row_size)
            for index in range(segment_count)
        ),
    )


def _check_frame(data: bytes, path: str) -> tuple[int, int]:
    """Check magic, format, sizes and checksum. Returns the sizes of header and row."""
    if len(data) < PREFIX.size:
        raise DamagedFile(path, f"only {len(data)} bytes long")
    magic, format_version, header_size, row_size = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise DamagedFile(path, "it does not begin with KMAN")
    checked = memoryview(data)[: -CHECKSUM.size]
    (checksum,) = CHECKSUM.unpack_from(data, len(checked))
    if checksum != xxhash.xxh3_64_intdigest(checked):
        raise DamagedFile(path, "its checksum differs")
    # The checksum comes first, so that a flipped bit is never mistaken for a later release.
    if format_version > FORMAT_WITH_FOREIGN_STATES:
        raise FormatFromTheFuture(path, format_version, FORMAT_WITH_FOREIGN_STATES)
    if header_size < HEADER.size or row_size < ROW.size or len(checked) < header_size:
        raise DamagedFile(path, f"header of {header_size} and rows of {row_size} bytes")
    return header_size, row_size


def _id_at(data: bytes, position: int, header_size: int) -> uuid.UUID | None:
    """Returns an id behind the header's fixed part; None if it is zero, or the header ends before."""
    if header_size < position + COPY_ID.size:
        return None
    (found,) = COPY_ID.unpack_from(data, position)
    return uuid.UUID(bytes=found) if any(found) else None


def _counts_tombstones(row: SegmentRow) -> bool:
    return row.tombstone_bytes != UNKNOWN or row.tombstones_due_ms != UNKNOWN


def encode_row(row: SegmentRow, *, counts_tombstones: bool = True) -> bytes:
    """Returns the bytes of a segment's row; `counts_tombstones`: with those of `TOMBSTONES`."""
    body = ROW.pack(
        row.base_offset,
        row.file_version,
        row.flags,
        row.control_count + 1,
        row.end_offset,
        row.size,
        row.max_timestamp,
        row.offset_of_max_timestamp,
        row.created_ms,
        row.first_append_ms,
        row.last_append_ms,
        row.record_count,
        row.tombstone_count,
        row.least_delete_horizon_ms,
    )
    if counts_tombstones:
        body += TOMBSTONES.pack(row.tombstone_bytes, row.tombstones_due_ms)
    return body


def decode_row(data: bytes, position: int, row_size: int = ROW.size) -> SegmentRow:
    """Returns the segment's row at a position, of so many bytes. Raises struct.error if the data ends
    before."""
    values = ROW.unpack_from(data, position)
    tombstone_bytes, tombstones_due_ms = UNKNOWN, UNKNOWN
    if row_size >= ROW.size + TOMBSTONES.size:
        tombstone_bytes, tombstones_due_ms = TOMBSTONES.unpack_from(data, position + ROW.size)
    return SegmentRow(
        base_offset=values[0],
        file_version=values[1],
        flags=values[2],
        control_count=values[3] - 1,
        end_offset=values[4],
        size=values[5],
        max_timestamp=values[6],
        offset_of_max_timestamp=values[7],
        created_ms=values[8],
        first_append_ms=values[9],
        last_append_ms=values[10],
        record_count=values[11],
        tombstone_count=values[12],
        least_delete_horizon_ms=values[13],
        tombstone_bytes=tombstone_bytes,
        tombstones_due_ms=tombstones_due_ms,
    )

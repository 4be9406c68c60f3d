"""Reads a segment's batches, and their records, as a section of rows.

Shows every batch, damaged or not. For a damaged batch a row gives the reason, and reading continues with
the next batch if the damaged one's length leads to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cli.base.text import bytes_members
from cli.dump.kinds import Kind
from cli.dump.section import Row, Section
from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.record_batch import Codec, read_records
from protocol.wire.errors import ProtocolError
from storage.batches.chunks import Unsound, read_chunks
from storage.files.files import FileSystem
from storage.verify.segment import DECOMPRESSED_BYTES_MAX

BATCH_TIMES = frozenset({"base_timestamp", "max_timestamp", "delete_horizon_ms", "timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of a segment to print."""

    with_records: bool = False
    start_offset: int = 0
    """Skip batches that end before this offset, and records before it."""
    limit: int | None = None
    """Print at most this many batches, or records if `with_records`."""


def segment_section(fs: FileSystem, path: str, selection: Selection) -> Section:
    """Read a segment chunk by chunk. Raises DiskError, also while the rows are consumed."""
    return Section(
        kind=Kind.SEGMENT.value,
        path=path,
        facts={"size": fs.size(path)},
        rows=_limited(_rows(fs, path, selection), selection),
        times=BATCH_TIMES,
    )


def _limited(rows: Iterator[Row], selection: Selection) -> Iterator[Row]:
    counted = "record" if selection.with_records else "batch"
    seen = 0
    for row in rows:
        seen += row["type"] == counted
        if selection.limit is not None and seen > selection.limit:
            return
        yield row


def _rows(fs: FileSystem, path: str, selection: Selection) -> Iterator[Row]:
    file = fs.open(path)
    try:
        for part in read_chunks(file, 0, file.size):
            if isinstance(part, Unsound):
                yield _unsound_row(part)
                continue
            for batch in part.batches:
                if batch.last_offset >= selection.start_offset:
                    data = part.data[batch.position : batch.position + batch.size_bytes]
                    header = read_header(data)
                    yield _batch_row(header, part.position + batch.position, is_sound=True)
                    if selection.with_records:
                        yield from _record_rows(data, selection.start_offset)
    finally:
        file.close()


def _unsound_row(part: Unsound) -> Row:
    """Returns the row of a damaged batch: its reason, and its header if that can be read."""
    row: Row = {"type": "damage", "position": part.position}
    try:
        header = read_header(part.data)
        row = {**_batch_row(header, part.position, is_sound=False), "type": "damage"}
    except ProtocolError:
        pass
    return {**row, "bytes": part.end_position - part.position, "reason": part.reason}


def _batch_row(header: BatchHeader, position: int, *, is_sound: bool) -> Row:
    codec = header.attributes & 7
    horizon = header.delete_horizon_ms
    return {
        "type": "batch",
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size_bytes,
        "codec": Codec(codec).name.lower() if codec <= Codec.ZSTD else str(codec),
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "timestamp_type": header.timestamp_type.name.lower(),
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "base_timestamp": header.base_timestamp if horizon is None else None,
        "max_timestamp": header.max_timestamp,
        "delete_horizon_ms": horizon,
        "crc": f"{header.crc:08x}",
        "crc_ok": is_sound,
    }


def _record_rows(batch: memoryview, start_offset: int) -> Iterator[Row]:
    try:
        records = read_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except ProtocolError as error:
        yield {"type": "damage", "reason": str(error)}
        return
    for record in records:
        if record.offset >= start_offset:
            yield {
                "type": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": record.headers,
            }


def json_record(row: Row) -> Row:
    """Returns a record's row with its bytes as text or base64, for JSON. Modifies `row`."""
    headers = [{"key": key, **bytes_members("value", value)} for key, value in row.pop("headers")]
    members = {**bytes_members("key", row.pop("key")), **bytes_members("value", row.pop("value"))}
    return {**row, **members, "headers": headers}

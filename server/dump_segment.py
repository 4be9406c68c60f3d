"""A segment's batches, and their records, as rows.

Sound or not, every batch is shown: where one is not sound a row says what is wrong with it, and if its
length leads to another batch, that one is next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import ProtocolError
from protocol.record_batch import BatchHeader, Codec, read_header, read_records
from server.dump_files import Row, Section
from server.dump_kinds import Kind
from server.dump_text import bytes_members
from storage.batch_chunks import Unsound, read_chunks
from storage.files import FileSystem
from storage.verify_segment import DECOMPRESSED_BYTES_MAX

BATCH_TIMES = frozenset({"base_timestamp", "max_timestamp", "delete_horizon_ms", "timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a segment is asked for."""

    with_records: bool = False
    start_offset: int = 0
    """Batches that end before it are passed over, and so are records."""
    limit: int | None = None
    """At most so many batches, or records where these are asked for."""


def segment_section(fs: FileSystem, path: str, selection: Selection) -> Section:
    """Read a segment, a chunk at a time. Raises DiskError, also while the rows are taken."""
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
    """What can be said of bytes that are no sound batch."""
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
    """A record's row with its bytes as JSON can say them."""
    headers = [{"key": key, **bytes_members("value", value)} for key, value in row.pop("headers")]
    members = {**bytes_members("key", row.pop("key")), **bytes_members("value", row.pop("value"))}
    return {**row, **members, "headers": headers}

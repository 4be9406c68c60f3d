"""What the files of a stopped broker's partition hold, batch for batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from protocol.record_batch import BatchHeader, Record
from tests.harness.log_builder import headers_in, records_in

Batch = tuple[BatchHeader, tuple[Record, ...]]


def batches_on_disk(data_dir: Path, topic: str, partition: int) -> list[list[Batch]]:
    """Of each segment, in offset order, without what depends on when it was cleaned."""
    (directory,) = data_dir.glob(f"{topic}.*/{partition}")
    return [_batches(path.read_bytes()) for path in sorted(directory.glob("*.log"))]


def _batches(data: bytes) -> list[Batch]:
    records = {record.offset: record for record in records_in(data)}
    return [(_timeless(header), _records_of(header, records)) for header in headers_in(data)]


def _timeless(header: BatchHeader) -> BatchHeader:
    """The delete horizon is the base timestamp, which the records' own ones are told from."""
    return replace(header, base_timestamp=0, crc=0, size_bytes=0)


def _records_of(header: BatchHeader, records: dict[int, Record]) -> tuple[Record, ...]:
    offsets = range(header.base_offset, header.next_offset)
    return tuple(records[offset] for offset in offsets if offset in records)

"""Reads the batches of a stopped broker's partition from its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from protocol.records.batch_header import BatchHeader
from protocol.records.record_batch import Record
from tests.harness.log_builder import headers_in, records_in

Batch = tuple[BatchHeader, tuple[Record, ...]]


def batches_on_disk(data_dir: Path, topic: str, partition: int) -> list[list[Batch]]:
    """Returns each segment's batches in offset order, without fields that depend on cleaning times."""
    (directory,) = data_dir.glob(f"{topic}.*/{partition}")
    return [_batches(path.read_bytes()) for path in sorted(directory.glob("*.log"))]


def _batches(data: bytes) -> list[Batch]:
    records = {record.offset: record for record in records_in(data)}
    return [(_timeless(header), _records_of(header, records)) for header in headers_in(data)]


def _timeless(header: BatchHeader) -> BatchHeader:
    """Clear the base timestamp, which a delete horizon may replace, and the fields that depend on it.
    The records have their own timestamps."""
    return replace(header, base_timestamp=0, crc=0, size_bytes=0)


def _records_of(header: BatchHeader, records: dict[int, Record]) -> tuple[Record, ...]:
    offsets = range(header.base_offset, header.next_offset)
    return tuple(records[offset] for offset in offsets if offset in records)

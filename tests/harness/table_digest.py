"""The table digest in plain Python: the oracle of `cleaner/kernel/table_digest.h`."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import closing

import xxhash

from cleaner.inspect.log_digest import LogDigest, log_digest
from cleaner.inspect.rehearsed_segment import rehearsed_view, scratch_files
from protocol.records.record_batch import Record
from tests.harness.compacted_log import CompactedLog, meter_of


def table_digest(
    records: Iterable[Record], start_offset: int = 0, end_offset: int = 1 << 62
) -> int:
    """Returns the digest of the committed records in [start_offset, end_offset)."""
    last = {
        record.key: record
        for record in sorted(records, key=lambda each: each.offset)
        if record.key is not None and start_offset <= record.offset < end_offset
    }
    hashes = (row_hash(record) for record in last.values() if record.value is not None)
    return sum(hashes) % (1 << 128)


def live_keys(records: Iterable[Record]) -> int:
    """Returns the number of keys with a value, from records in offset order."""
    values = {record.key: record.value for record in records if record.key is not None}
    return sum(value is not None for value in values.values())


def row_hash(record: Record) -> int:
    """Returns the hash of one record, with its offset."""
    return xxh3(struct.pack(">q", record.offset) + content_hash(record).to_bytes(16))


def content_hash(record: Record) -> int:
    """Returns the hash of one record, without its offset."""
    headers = 0
    for key, value in record.headers:
        name = key.encode()
        image = headers.to_bytes(16) + struct.pack(">ii", len(name), size_of(value))
        headers = xxh3(image + bytes_hash(name) + bytes_hash(value))
    sizes = size_of(record.key), size_of(record.value), len(record.headers)
    image = struct.pack(">qiii", record.timestamp, *sizes)
    image += bytes_hash(record.key) + bytes_hash(record.value) + headers.to_bytes(16)
    return xxh3(image)


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def bytes_hash(data: bytes | None) -> bytes:
    return (0 if data is None else xxh3(data)).to_bytes(16)


def xxh3(data: bytes) -> int:
    return xxhash.xxh3_128_intdigest(data)


def digest_of(log: CompactedLog, end_offset: int | None = None) -> LogDigest:
    """Returns the cleaner's digest of a log."""
    view = log.log.cleaning_view(as_if_rolled=True)
    meter = meter_of(log.log, view.generation)
    with closing(scratch_files(log.log)) as scratch:
        return log_digest(rehearsed_view(view, scratch), end_offset, log.settings, meter=meter)

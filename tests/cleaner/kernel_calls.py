"""Calls of the compiled kernel, with default arguments for tests."""

from __future__ import annotations

import struct

from aiokafka.record import MemoryRecords
from typing_extensions import Buffer

from cleaner.kernel.kernel import (
    BatchFilter,
    KeyIndexer,
    OffsetMap,
    map_keys,
    mark_keys,
)
from cleaner.rules.step import FilterStep, IndexStep, MapStep, MarkStep
from tests.cleaner.kernel_log import (
    HASH_KEY,
    INFLATED_BYTES_MAX,
    LogBatch,
    encode,
    log_batch,
)
from tests.cleaner.kernel_steps import index_log, mark_log

NOW_MS = 50_000
ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT = 21, 27, 35, 57


def index_chunk(
    chunk: bytes, *, position: int = 0, decompressed_bytes_max: int = INFLATED_BYTES_MAX
) -> IndexStep:
    indexer = KeyIndexer(HASH_KEY, base_offset=0, decompressed_bytes_max=decompressed_bytes_max)
    return indexer.feed(chunk, position=position)


def filter_of(
    *,
    end_offset: int = 1_000,
    tail_offset: int = -1,
    now_ms: int = NOW_MS,
    producers: tuple[int, ...] = (),
    segment_bytes_max: int = 2**31 - 1,
    index_interval_bytes: int = 4096,
    decompressed_bytes_max: int = INFLATED_BYTES_MAX,
    marks: bytes = bytes(1_000),
) -> BatchFilter:
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=end_offset,
        tail_offset=tail_offset,
        now_ms=now_ms,
        delete_retention_ms=1_000,
        decompressed_bytes_max=decompressed_bytes_max,
        producer_last_offsets=producers,
        segment_bytes_max=segment_bytes_max,
        index_interval_bytes=index_interval_bytes,
        is_verified=True,
    )
    batch_filter.start_source(0, marks)
    batch_filter.start_segment(0)
    return batch_filter


def block_of(data: bytes) -> bytes:
    """Returns the only key block of a segment at offset 0."""
    (block,) = index_log(data, chunk_bytes=1 << 24).blocks
    return block


def fed(data: bytes | memoryview, batch_filter: BatchFilter | None = None) -> FilterStep:
    """Filter the first bytes of a segment."""
    return (batch_filter or filter_of()).feed(data, block_of(bytes(data)))


def marks_of(*batches: LogBatch) -> bytes:
    """Returns the marks of the superseded entries of a log at offset 0."""
    return bytes(mark_log(index_log(b"".join(map(encode, batches))), end_offset=1_000).marks)


def int_at(data: memoryview | bytes, position: int, letter: str) -> int:
    (value,) = struct.unpack_from(">" + letter, data, position)
    assert isinstance(value, int)
    return value


def read_by_a_client(data: memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Returns the records that aiokafka's consumer reads from the bytes."""
    found, batches = [], MemoryRecords(bytes(data))
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    return found


def map_block(
    block: bytes,
    offset_map: OffsetMap,
    *,
    base_offset: int = 0,
    start_offset: int = 0,
    end_offset: int = 1_000,
) -> MapStep:
    return map_keys(
        block,
        offset_map,
        base_offset=base_offset,
        start_offset=start_offset,
        end_offset=end_offset,
    )


def mark_block(
    block: bytes,
    offset_map: OffsetMap,
    marks: Buffer,
    *,
    first_entry: int = 0,
    start_offset: int = 0,
    end_offset: int = 1_000,
) -> MarkStep:
    return mark_keys(
        block,
        offset_map,
        marks,
        base_offset=0,
        first_entry=first_entry,
        start_offset=start_offset,
        end_offset=end_offset,
    )


ABC = block_of(encode(log_batch(0, (b"a", b"1"), (b"b", None), (None, b"3"), (b"a", b"4"))))

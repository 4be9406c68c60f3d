"""Hashes of records from Spark's Kafka source or from segment files, which an audit compares.

A row keeps its partition, offset, time and key; two hashes (`table_digest.h`), as two numbers each,
replace the rest: one of everything that a reader sees except the offset, and one that includes the
offset. So the shuffled data does not grow with the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleaner.kernel.row_hashes import BytesColumn, HeadersColumn, hash_rows
from pipeline.source.ranks import VERSION, versions
from pipeline.source.superseded import map_in_arrow
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy

CONTENT = ("content_high", "content_low")
"""The hash of a record without its offset"""
ROW = ("row_high", "row_low")
"""and with it."""
SCHEMA = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, is_tombstone BOOLEAN,"
    " content_high BIGINT, content_low BIGINT, row_high BIGINT, row_low BIGINT"
)
NAMES = ("partition", "offset", "timestamp", "key", "is_tombstone", *CONTENT, *ROW)
HEADERS = "headers"
LIMB_BITS = 32
"""Bits of a limb in which digests are summed: 2^31 limbs add up to at most a BIGINT."""


def hashed(records: DataFrame, strategy: CompactionStrategy = BY_OFFSET) -> DataFrame:
    """Returns the records with a key, as `NAMES`, and with their versions if the strategy gives any.

    Headers count if their column exists.
    """
    columns = ["partition", "offset", "timestamp", "key", "value"]
    if HEADERS in records.columns:
        columns.append(HEADERS)
    ranked = records.select(*columns, *versions(strategy)).where(F.col("key").isNotNull())
    schema = f"{SCHEMA}, {VERSION} BIGINT" if strategy.has_versions else SCHEMA
    return map_in_arrow(ranked, hash_batches, schema)


def hash_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hash the batches of one task."""
    for batch in batches:
        yield hash_batch(batch)


def hash_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns one batch of records as `NAMES`, and their versions if the batch has any. Pure."""
    values = batch.column("value")
    times = batch.column("timestamp")
    headers = headers_column(batch.column(HEADERS)) if HEADERS in batch.schema.names else None
    halves = hash_rows(
        numbers(batch.column("offset")),
        numbers(pc.cast(times, pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())),
        bytes_column(batch.column("key")),
        bytes_column(values),
        headers,
    )
    size = 8 * batch.num_rows
    parts = [memoryview(halves)[at * size : (at + 1) * size] for at in range(4)]
    arrays = [
        *(batch.column(name) for name in NAMES[:4]),
        pc.is_null(values),
        *(pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(p)]) for p in parts),
    ]
    names = list(NAMES)
    if VERSION in batch.schema.names:
        names.append(VERSION)
        arrays.append(batch.column(VERSION))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def numbers(array: pa.Array) -> memoryview:
    """Returns the memory of an int64 array."""
    data = memoryview(array.buffers()[1] or b"").cast("B")
    return data[8 * array.offset : 8 * (array.offset + len(array))]


def bytes_column(array: pa.Array) -> BytesColumn:
    """Returns the memory of an array of bytes or of strings."""
    wide = array.cast(pa.large_binary())
    validity, ends, data = wide.buffers()
    return BytesColumn(
        start=wide.offset,
        count=len(wide),
        validity=None if validity is None else memoryview(validity).cast("B"),
        ends=memoryview(ends or bytes(8)).cast("B"),
        data=memoryview(data or b"").cast("B"),
    )


def headers_column(array: pa.Array) -> HeadersColumn:
    """Returns the memory of an array of lists of (key, value); a null list means no headers."""
    keys, values = array.values.flatten()
    counts = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    return HeadersColumn(
        firsts=numbers(array.offsets[:-1].cast(pa.int64())),
        counts=numbers(counts),
        keys=bytes_column(keys),
        values=bytes_column(values),
    )


def limb_sums(counts: Column) -> list[Column]:
    """Returns aggregates over the rows that count; `digest_of_limbs` turns them into a digest."""
    mask = F.lit((1 << LIMB_BITS) - 1)
    limbs = [
        limb
        for half in ROW
        for limb in (F.shiftrightunsigned(F.col(half), LIMB_BITS), F.col(half).bitwiseAND(mask))
    ]
    return [F.sum(F.when(counts, limb)).alias(f"limb_{at}") for at, limb in enumerate(limbs)]


def digest_of_limbs(limbs: Sequence[int | None]) -> int:
    """Returns the digest for its summed limbs. Pure."""
    digest = 0
    for limb in limbs:
        digest = (digest << LIMB_BITS) + (limb or 0)
    return digest % (1 << 128)

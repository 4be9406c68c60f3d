"""The cleaner's kernel in records per CPU-second, and the memory of its map per key."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.base.batches import keyed_batch
from bench.base.figure import Figure, interleaved
from bench.base.processes import resident_bytes
from cleaner.kernel.kernel import BatchFilter, KeyIndexer, OffsetMap, map_keys, mark_keys
from cleaner.pacing.settings import MAP_ENTRY_BYTES
from protocol.records.batch_header import stamp
from protocol.records.batch_scan import crc32c

HASH_KEY = bytes(range(16))
RECORDS_EACH_BATCH = 1000
BATCHES_EACH_CHUNK = 16
DIFFERENT_BATCHES = 2000
VALUE_BYTES = 100
INFLATED_BYTES_MAX = 16 << 20
MAP_BYTES = 128 << 20


def kernel_figures(pairs: int) -> list[Figure]:
    """Measure the kernel's steps over 10 M records of 100 B, with two numbers of keys, and the map."""
    figures = [kernel_figure(keys, pairs) for keys in (200_000, 1_000_000)]
    return [*figures, map_figure(pairs)]


def kernel_figure(keys: int, pairs: int) -> Figure:
    """Measure index, map, mark and filter on one thread, from memory; the probe checksums and copies
    the bytes twice."""
    templates = [
        keyed_batch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES, keys=keys, seed=seed)
        for seed in range(DIFFERENT_BATCHES)
    ]
    chunks = list(chunked(templates, repeats=5))
    records = len(chunks) * BATCHES_EACH_CHUNK * RECORDS_EACH_BATCH
    offset_map = OffsetMap(keys * 27 + 4096, HASH_KEY)
    steps: list[dict[str, float]] = []

    def measure() -> float:
        steps.append(kernel_seconds(chunks, offset_map, records=records))
        return records / sum(steps[-1].values()) / 1e6

    def probe() -> float:
        target = bytearray(max(map(len, chunks)))
        started = time.thread_time()
        for chunk in chunks * 2:
            crc32c(chunk)
            target[: len(chunk)] = chunk
        return records / (time.thread_time() - started) / 1e6

    figure = interleaved(
        f"kernel, index, map, mark and filter, {keys // 1000} k keys",
        "M records/CPU-s",
        measure,
        probe,
        limit_is="CRC-32C and copy of the same bytes, twice",
        pairs=pairs,
    )
    each = ", ".join(
        f"{name} {records / sorted(step[name] for step in steps)[len(steps) // 2] / 1e6:.1f}"
        for name in steps[0]
    )
    return replace(
        figure,
        note=f"{records / 1e6:.0f} M records, 16 B keys, {VALUE_BYTES} B values; {each}",
    )


def chunked(templates: list[bytes], *, repeats: int) -> Iterator[bytes]:
    """Yields the templates repeatedly, with growing offsets, in chunks like those of a segment file."""
    offset, chunk = 0, bytearray()
    for template in templates * repeats:
        batch = bytearray(template)
        stamp(batch, base_offset=offset, leader_epoch=1)
        chunk += batch
        offset += RECORDS_EACH_BATCH
        if offset % (BATCHES_EACH_CHUNK * RECORDS_EACH_BATCH) == 0:
            yield bytes(chunk)
            chunk.clear()


def kernel_seconds(chunks: list[bytes], offset_map: OffsetMap, *, records: int) -> dict[str, float]:
    """Returns the CPU seconds of each step over the chunks of one segment."""
    seconds: dict[str, float] = {}
    blocks: list[bytes] = []
    marks = bytearray(records // 8 + 1)
    offset_map.clear()
    for name, step in (
        ("index", partial(index_chunks, chunks, blocks)),
        ("map", partial(map_blocks, blocks, offset_map, records)),
        ("mark", partial(mark_blocks, blocks, offset_map, marks, records)),
        ("filter", partial(filter_chunks, chunks, blocks, marks, records)),
    ):
        started = time.thread_time()
        step()
        seconds[name] = time.thread_time() - started
    return seconds


def index_chunks(chunks: list[bytes], blocks: list[bytes]) -> None:
    indexer = KeyIndexer(HASH_KEY, base_offset=0, decompressed_bytes_max=INFLATED_BYTES_MAX)
    for chunk in chunks:
        block = indexer.feed(chunk).block
        assert block is not None
        blocks.append(block)


def map_blocks(blocks: list[bytes], offset_map: OffsetMap, records: int) -> None:
    for block in blocks:
        map_keys(block, offset_map, base_offset=0, start_offset=0, end_offset=records)


def mark_blocks(blocks: list[bytes], offset_map: OffsetMap, marks: bytearray, records: int) -> None:
    for number, block in enumerate(blocks):
        mark_keys(
            block,
            offset_map,
            marks,
            base_offset=0,
            first_entry=number * BATCHES_EACH_CHUNK * RECORDS_EACH_BATCH,
            start_offset=0,
            end_offset=records,
        )


def filter_chunks(chunks: list[bytes], blocks: list[bytes], marks: bytearray, records: int) -> None:
    batch_filter = BatchFilter(
        HASH_KEY,
        end_offset=records,
        tail_offset=records - 1,
        now_ms=1_700_000_000_000,
        delete_retention_ms=86_400_000,
        decompressed_bytes_max=INFLATED_BYTES_MAX,
        is_verified=True,
    )
    batch_filter.start_source(0, marks)
    batch_filter.start_segment(0)
    for chunk, block in zip(chunks, blocks, strict=True):
        batch_filter.feed(chunk, block)


def map_figure(pairs: int) -> Figure:
    """Measure the memory per key of a full map. The goal is at most 27 bytes."""

    def measure() -> float:
        before = resident_bytes(os.getpid())
        offset_map = OffsetMap(MAP_BYTES, HASH_KEY)
        for number in range(offset_map.capacity):
            offset_map.put(number.to_bytes(8), number)
        return (resident_bytes(os.getpid()) - before) / offset_map.capacity

    return interleaved(
        f"memory of a full map of {MAP_BYTES >> 20} MiB",
        "bytes a key",
        measure,
        lambda: float(MAP_ENTRY_BYTES),
        limit_is="a hash of 16 bytes and an offset of 8, and no empty slots",
        pairs=pairs,
    )

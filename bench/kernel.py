"""The cleaner's kernel in records per CPU-second, and the memory of its map by key."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from bench.batches import keyed_batch
from bench.figure import Figure, interleaved
from bench.processes import resident_bytes
from cleaner.kernel import BatchFilter, OffsetMap, map_batches
from cleaner.settings import MAP_ENTRY_BYTES
from protocol.batch_scan import crc32c
from protocol.record_batch import stamp

HASH_KEY = bytes(range(16))
RECORDS_EACH_BATCH = 1000
BATCHES_EACH_CHUNK = 16
DIFFERENT_BATCHES = 2000
VALUE_BYTES = 100
INFLATED_BYTES_MAX = 16 << 20
MAP_BYTES = 128 << 20


def kernel_figures(pairs: int) -> list[Figure]:
    """Both passes of the kernel over 10 M records of 100 B, at two counts of keys; the map's size."""
    figures = [kernel_figure(keys, pairs) for keys in (200_000, 1_000_000)]
    return [*figures, map_figure(pairs)]


def kernel_figure(keys: int, pairs: int) -> Figure:
    """Map and filter, on one thread, from memory; the probe checksums and copies the bytes twice."""
    templates = [
        keyed_batch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES, keys=keys, seed=seed)
        for seed in range(DIFFERENT_BATCHES)
    ]
    chunks = list(chunked(templates, repeats=5))
    records = len(chunks) * BATCHES_EACH_CHUNK * RECORDS_EACH_BATCH
    offset_map = OffsetMap(keys * 27 + 4096, HASH_KEY)

    def measure() -> float:
        started = time.thread_time()
        run_kernel(chunks, offset_map, end_offset=records)
        return records / (time.thread_time() - started) / 1e6

    def probe() -> float:
        target = bytearray(max(map(len, chunks)))
        started = time.thread_time()
        for chunk in chunks * 2:
            crc32c(chunk)
            target[: len(chunk)] = chunk
        return records / (time.thread_time() - started) / 1e6

    return interleaved(
        f"kernel, map and filter, {keys // 1000} k keys",
        "M records/CPU-s",
        measure,
        probe,
        limit_is="CRC-32C and copy of the same bytes, twice",
        pairs=pairs,
        note=f"{records / 1e6:.0f} M records, 16 B keys, {VALUE_BYTES} B values",
    )


def chunked(templates: list[bytes], *, repeats: int) -> Iterator[bytes]:
    """The templates, again and again, with growing offsets, in chunks as a segment file gives them."""
    offset, chunk = 0, bytearray()
    for template in templates * repeats:
        batch = bytearray(template)
        stamp(batch, base_offset=offset, leader_epoch=1)
        chunk += batch
        offset += RECORDS_EACH_BATCH
        if offset % (BATCHES_EACH_CHUNK * RECORDS_EACH_BATCH) == 0:
            yield bytes(chunk)
            chunk.clear()


def run_kernel(chunks: list[bytes], offset_map: OffsetMap, *, end_offset: int) -> None:
    offset_map.clear()
    for chunk in chunks:
        step = map_batches(
            chunk,
            offset_map,
            start_offset=0,
            end_offset=end_offset,
            decompressed_bytes_max=INFLATED_BYTES_MAX,
        )
        assert step.consumed_bytes == len(chunk)
    batch_filter = BatchFilter(
        offset_map,
        end_offset=end_offset,
        tail_offset=end_offset - 1,
        now_ms=1_700_000_000_000,
        delete_retention_ms=86_400_000,
        decompressed_bytes_max=INFLATED_BYTES_MAX,
    )
    batch_filter.start_segment(0)
    for chunk in chunks:
        batch_filter.feed(chunk)


def map_figure(pairs: int) -> Figure:
    """What a map with as many keys as it takes has in memory, by key; at most 27 bytes is the goal."""

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

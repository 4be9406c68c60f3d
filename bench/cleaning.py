"""The cleaner's kernel in records per CPU-second, and a whole pass beside plain reading and writing."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.batches import keyed_batch
from bench.cleaned_log import build_log, clean_whole, copy_of
from bench.figure import Figure, interleaved
from cleaner.kernel import BatchFilter, OffsetMap, map_batches
from protocol.batch_scan import crc32c
from protocol.record_batch import stamp

HASH_KEY = bytes(range(16))
RECORDS_EACH_BATCH = 1000
BATCHES_EACH_CHUNK = 16
DIFFERENT_BATCHES = 2000
VALUE_BYTES = 100
INFLATED_BYTES_MAX = 16 << 20


def kernel_figures(pairs: int) -> list[Figure]:
    """Both passes of the kernel over 10 M records of 100 B, at two counts of keys."""
    return [kernel_figure(keys, pairs) for keys in (200_000, 1_000_000)]


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


class Shape(NamedTuple):
    """What the records of a measured log look like."""

    label: str
    value_bytes: int
    records: int
    keys: int


SHAPES = (
    Shape("100 B values", 100, 10_000_000, 1_000_000),
    Shape("1 KB values", 1000, 1_000_000, 250_000),
)
MOSTLY_KEPT = Shape("1 KB values, most kept", 1000, 1_000_000, 2_000_000)
"""What a pass over a topic of mostly different keys must write, it must also verify."""

TEMPLATES = 1000


def templates_of(shape: Shape) -> list[bytes]:
    return [
        keyed_batch(
            records=RECORDS_EACH_BATCH, value_bytes=shape.value_bytes, keys=shape.keys, seed=seed
        )
        for seed in range(TEMPLATES)
    ]


def pass_figures(pairs: int) -> list[Figure]:
    """A whole pass over a log on disk; the probe reads the log twice and writes what survives."""
    return [pass_figure(shape, min(pairs, 3)) for shape in SHAPES]


def pass_figure(shape: Shape, pairs: int) -> Figure:
    templates = templates_of(shape)
    cpu_seconds: list[float] = []
    survivors: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "log"
        source.mkdir()
        build_log(source, templates, shape.records // RECORDS_EACH_BATCH // len(templates))
        size = sum(path.stat().st_size for path in source.glob("*.log"))

        def measure() -> float:
            with copy_of(source) as log:
                started, cpu_started = time.perf_counter(), time.thread_time()
                report = clean_whole(log)
                cpu_seconds.append(time.thread_time() - cpu_started)
                survivors.append(report.bytes_after)
                return size / 1e6 / (time.perf_counter() - started)

        def probe() -> float:
            return size / 1e6 / read_twice_and_write(source, survivors[-1])

        figure = interleaved(
            f"cleaning pass, {shape.label}",
            "MB/s",
            measure,
            probe,
            limit_is="reading twice, writing and syncing what survives",
            pairs=pairs,
        )
    rate = shape.records / sorted(cpu_seconds)[len(cpu_seconds) // 2] / 1e6
    kept = survivors[-1] / size
    return replace(
        figure, note=f"{rate:.2f} M records/CPU-s, {kept:.0%} of {size / 1e9:.2f} GB kept"
    )


def verification_figures(pairs: int) -> list[Figure]:
    """What it costs to verify a pass: its time beside that of one that is not verified."""
    return [verification_figure(shape, pairs) for shape in (*SHAPES, MOSTLY_KEPT)]


def verification_figure(shape: Shape, pairs: int) -> Figure:
    kept: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "log"
        source.mkdir()
        build_log(source, templates_of(shape), shape.records // RECORDS_EACH_BATCH // TEMPLATES)

        def seconds(*, verify: bool) -> float:
            with copy_of(source) as log:
                started = time.perf_counter()
                report = clean_whole(log, verify=verify)
                kept.append(report.bytes_after / report.bytes_before)
                return time.perf_counter() - started

        figure = interleaved(
            f"verified cleaning, {shape.label}",
            "s a pass",
            lambda: seconds(verify=True),
            lambda: seconds(verify=False),
            limit_is="the same pass, not verified: the ratio is what verification costs",
            pairs=pairs,
        )
    return replace(figure, note=f"{kept[-1]:.0%} of the bytes kept")


def read_twice_and_write(source: Path, survivor_bytes: int) -> float:
    """Seconds for the least a pass must do with the disk, in the cleaner's chunks."""
    chunk = bytearray(1 << 20)
    target = source.with_name("probe")
    started = time.perf_counter()
    for path in sorted(source.glob("*.log")) * 2:
        with path.open("rb", buffering=0) as file:
            while file.readinto(chunk):
                pass
    with target.open("wb", buffering=0) as file:
        for _ in range(survivor_bytes // len(chunk)):
            file.write(chunk)
            os.fdatasync(file.fileno())
    seconds = time.perf_counter() - started
    target.unlink()
    return seconds

"""Cleaning passes over logs on the disk: their CPU time, their time, and two of them at once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.cleaned_log import clean_whole, copy_of
from bench.disk import drop_from_cache, read_twice_and_write, size_of
from bench.figure import Figure, interleaved, of_pairs
from bench.pass_shapes import LARGE, SMALL, Shape, log_of

HASHED_BYTES = 256 << 20


def pass_figures(pairs: int) -> list[Figure]:
    """Goals: 3 M records a CPU-second at 100 B, 0.6 of the disk at 1 KB, 1.6 with two workers."""
    with log_of(SMALL) as source:
        small = [*pass_figure(SMALL, source, pairs), workers_figure(SMALL, source, pairs)]
    with log_of(LARGE) as source:
        large = [
            *pass_figure(LARGE, source, pairs),
            *pass_figure(LARGE, source, pairs, is_cached=False),
        ]
    return [*small, *large]


def pass_figure(
    shape: Shape, source: Path, pairs: int, *, is_cached: bool = True
) -> tuple[Figure, Figure]:
    """A whole pass: its rate beside the disk's, and records by CPU-second."""
    size = size_of(source)
    survivors: list[int] = []
    rates: list[float] = []
    rates_of_probe: list[float] = []

    def measure() -> float:
        with copy_of(source) as log:
            if not is_cached:
                drop_from_cache(Path(log.directory))
            started, cpu_started = time.perf_counter(), time.process_time()
            survivors.append(clean_whole(log).bytes_after)
            rates.append(shape.records / (time.process_time() - cpu_started) / 1e6)
            return size / 1e6 / (time.perf_counter() - started)

    def probe() -> float:
        if not is_cached:
            drop_from_cache(source)
        cpu_started = time.process_time()
        seconds = read_twice_and_write(source, survivors[-1])
        rates_of_probe.append(shape.records / (time.process_time() - cpu_started) / 1e6)
        return size / 1e6 / seconds

    label = shape.label if is_cached else f"{shape.label}, source not in the page cache"
    limit_is = "reading twice, writing and syncing what survives"
    figure = interleaved(
        f"cleaning pass, {label}", "MB/s", measure, probe, limit_is=limit_is, pairs=pairs
    )
    note = f"{survivors[-1] / size:.0%} of {size / 1e9:.2f} GB kept"
    by_cpu = of_pairs(
        f"records by CPU time, {label}",
        "M records/CPU-s",
        list(zip(rates, rates_of_probe, strict=True)),
        limit_is=limit_is,
        note=note,
    )
    return replace(figure, note=note), by_cpu


def workers_figure(shape: Shape, source: Path, pairs: int) -> Figure:
    """Two logs, cleaned one after the other and at the same time."""

    def clean_two(workers: int) -> float:
        with copy_of(source) as one, copy_of(source, 1) as other:
            return seconds_of([partial(clean_whole, one), partial(clean_whole, other)], workers)

    def hash_two(workers: int) -> float:
        return seconds_of([partial(hashlib.sha256, bytes(HASHED_BYTES))] * 2, workers)

    return interleaved(
        f"two workers beside one, {shape.label}",
        "times as fast",
        lambda: clean_two(1) / clean_two(2),
        lambda: hash_two(1) / hash_two(2),
        limit_is="SHA-256 on two threads beside one: what the second core is worth",
        pairs=pairs,
    )


def seconds_of(works: Sequence[Callable[[], object]], workers: int) -> float:
    """How long so many threads take for all of it."""
    with ThreadPoolExecutor(workers) as pool:
        started = time.perf_counter()
        for done in [pool.submit(work) for work in works]:
            done.result()
        return time.perf_counter() - started

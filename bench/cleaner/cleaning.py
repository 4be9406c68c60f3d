"""Cleaning passes over logs on the disk: their CPU time, and their time compared with the disk's.

A log that was never cleaned has no key sidecars: its first pass reads it twice, once to make them. A
segment with a sidecar is read only to be rewritten. Both are measured. The probe reads as often, and
also from a fresh copy: on this kind of machine, fresh pages cost more than the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.base.disk import drop_from_cache, read_and_write, size_of
from bench.base.figure import Figure, interleaved, of_pairs
from bench.cleaner.cleaned_log import clean_whole, fresh_copy, index_at, opened
from bench.cleaner.pass_shapes import LARGE, SMALL, Shape, log_of


class Start(NamedTuple):
    """The state in which a pass finds its log."""

    shape: Shape
    source: Path
    has_sidecars: bool = False
    is_cached: bool = True

    @property
    def label(self) -> str:
        keys = "key sidecars there" if self.has_sidecars else "first pass"
        return f"{self.shape.label}, {keys}, {'warm' if self.is_cached else 'cold'} page cache"

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """Copy the log, into the page cache or not."""
        with fresh_copy(self.source) as copy:
            if not self.is_cached:
                drop_from_cache(copy)
            yield copy


def pass_figures(pairs: int) -> list[Figure]:
    """Measure passes. Goals: 3 M records a CPU-second with 100 B values, 0.6 of the disk with 1 KB."""
    with log_of(SMALL) as source:
        figures = pass_figure(Start(SMALL, source), pairs)
        index_at(source)
        figures += pass_figure(Start(SMALL, source, has_sidecars=True), pairs)
    with log_of(LARGE) as source:
        for has_sidecars in (False, True):
            if has_sidecars:
                index_at(source)
            for is_cached in (True, False):
                start = Start(LARGE, source, has_sidecars, is_cached)
                figures += pass_figure(start, pairs)
    return figures


def pass_figure(start: Start, pairs: int) -> list[Figure]:
    """Measure a whole pass: its rate compared with the disk's, and records per CPU-second."""
    size = size_of(start.source)
    survivors: list[int] = []
    rates: list[float] = []
    rates_of_probe: list[float] = []

    def measure() -> float:
        with start.copy() as copy:
            log = opened(copy)
            began, cpu_began = time.perf_counter(), time.process_time()
            survivors.append(clean_whole(log).bytes_after)
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
            log.close()
        rates.append(start.shape.records / cpu_seconds / 1e6)
        return size / 1e6 / seconds

    def probe() -> float:
        with start.copy() as copy:
            cpu_began = time.process_time()
            seconds = read_and_write(copy, survivors[-1], reads=1 if start.has_sidecars else 2)
            rates_of_probe.append(start.shape.records / (time.process_time() - cpu_began) / 1e6)
        return size / 1e6 / seconds

    times = "once" if start.has_sidecars else "twice"
    limit_is = f"reading {times}, writing and syncing what survives"
    figure = interleaved(
        f"cleaning, {start.label}", "MB/s", measure, probe, limit_is=limit_is, pairs=pairs
    )
    note = f"{survivors[-1] / size:.0%} of {size / 1e9:.2f} GB kept"
    by_cpu = of_pairs(
        f"records by CPU time, {start.label}",
        "M records/CPU-s",
        list(zip(rates, rates_of_probe, strict=True)),
        limit_is=limit_is,
        note=note,
    )
    return [replace(figure, note=note), by_cpu]

"""A log of four million records for the features that look at keys, versions or times.

    first pass    all segments are dirty and get their key sidecars
    next pass     200,000 records later: the clean segments have sidecars, in which the new keys are
                  looked up

Timestamps and versions are random, so winners by these are anywhere in the log; by offset they are at
its end.
"""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.base.bare_log import now_ms
from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import (
    CONFIG,
    build_log,
    clean_at,
    clean_whole,
    copy_of,
    extend_log,
)
from protocol.records.record_batch import Record, build_batch
from storage.formats.log_config import LogConfig

BATCHES = 4_000
DIRTY_BATCHES = BATCHES // 20
RECORDS_EACH_BATCH = 1_000
TEMPLATES = 400
KEYS = 400_000
VALUE_BYTES = 100
HEADER = "version"
AGE_MS_MAX = 10**9
"""The oldest record is so old, eleven days."""


@contextmanager
def keyed_log() -> Iterator[Path]:
    """Build the log, closed, in a folder with room for other files."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "dirty"
        build_log(directory, batches(BATCHES))
        yield directory


def extend(directory: Path) -> None:
    """Append the 200,000 records."""
    extend_log(directory, batches(DIRTY_BATCHES))


def batches(count: int) -> Iterator[bytes]:
    templates = [_batch(seed) for seed in range(min(count, TEMPLATES))]
    return (templates[number % len(templates)] for number in range(count))


class Cleaned(NamedTuple):
    """A log to measure passes over, and the settings of its topic."""

    directory: Path
    config: LogConfig = CONFIG


def figures_beside_the_last_offset(configs: Mapping[str, LogConfig], pairs: int) -> list[Figure]:
    """Measure both passes with each configuration, beside one that keeps the last offset of a key."""
    limit_is = "the same pass, keeping the last offset"
    with keyed_log() as dirty:
        return [
            figure
            for name, config in configs.items()
            for figure in pass_figures(
                name, Cleaned(dirty, config), Cleaned(dirty), limit_is=limit_is, pairs=pairs
            )
        ]


def pass_figures(
    name: str, log: Cleaned, beside: Cleaned, *, limit_is: str, pairs: int
) -> list[Figure]:
    """Measure the first pass over a log and the next one, beside those over another."""

    def figure(which: str, log: Cleaned, beside: Cleaned) -> Figure:
        return interleaved(
            f"{which} pass, {name}",
            "s a pass",
            lambda: seconds_of_a_pass(log),
            lambda: seconds_of_a_pass(beside),
            limit_is=limit_is,
            pairs=pairs,
        )

    first = figure("first", log, beside)
    with (
        _cleaned_and_extended(log, "next") as after,
        _cleaned_and_extended(beside, "next-beside") as after_beside,
    ):
        return [first, figure("next", after, after_beside)]


@contextmanager
def _cleaned_and_extended(log: Cleaned, name: str) -> Iterator[Cleaned]:
    copy = log.directory.with_name(name)
    shutil.copytree(log.directory, copy)
    try:
        clean_at(copy, log.config)
        extend(copy)
        yield Cleaned(copy, log.config)
    finally:
        shutil.rmtree(copy)


def seconds_of_a_pass(cleaned: Cleaned) -> float:
    """Clean a copy of a log. Returns how long that took."""
    with copy_of(cleaned.directory, config=cleaned.config) as log:
        started = time.perf_counter()
        clean_whole(log)
        return time.perf_counter() - started


def _batch(seed: int) -> bytes:
    source, now = random.Random(seed), now_ms()
    records = [
        Record(
            offset=number,
            timestamp=now - source.randrange(AGE_MS_MAX),
            key=b"key-%012d" % source.randrange(KEYS),
            value=source.randbytes(VALUE_BYTES),
            headers=((HEADER, struct.pack(">q", source.randrange(10**9))),),
        )
        for number in range(RECORDS_EACH_BATCH)
    ]
    return bytes(build_batch(records))

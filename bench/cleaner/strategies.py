"""What a pass costs where records have versions (`compaction.strategy`), beside the same pass by offset.

    first pass    all segments are dirty and get their key sidecars
    next pass     the clean segments have sidecars, in which the new records' keys are looked up

Timestamps and versions are random, so winners are anywhere in the log; by offset they are at its end.
"""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

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
CONFIGS = {
    "by timestamp": replace(CONFIG, compaction_strategy="timestamp"),
    "by header": replace(CONFIG, compaction_strategy="header", compaction_strategy_header=HEADER),
}


def strategy_figures(pairs: int) -> list[Figure]:
    """Measure first passes over four million records, and the passes after 200,000 more."""
    return figures_beside_the_last_offset(CONFIGS, pairs)


def figures_beside_the_last_offset(configs: Mapping[str, LogConfig], pairs: int) -> list[Figure]:
    """Measure both passes with each configuration, beside one that keeps the last offset of a key."""
    templates = [_batch(seed) for seed in range(TEMPLATES)]
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        dirty = Path(folder) / "dirty"
        build_log(dirty, _cycled(templates, BATCHES))
        for name, config in configs.items():
            figures.append(_figure(f"first pass, {name}", (dirty, config), (dirty, CONFIG), pairs))
        for name, config in configs.items():
            sources = [Path(folder) / each for each in (name, "offset")]
            for source, its_config in zip(sources, (config, CONFIG), strict=True):
                shutil.copytree(dirty, source)
                clean_at(source, its_config)
                extend_log(source, _cycled(templates, DIRTY_BATCHES))
            kept, by_offset = sources
            figure = _figure(f"next pass, {name}", (kept, config), (by_offset, CONFIG), pairs)
            figures.append(figure)
            for source in sources:
                shutil.rmtree(source)
    return figures


def _figure(
    name: str, kept: tuple[Path, LogConfig], by_offset: tuple[Path, LogConfig], pairs: int
) -> Figure:
    return interleaved(
        name,
        "s a pass",
        lambda: _seconds(*kept),
        lambda: _seconds(*by_offset),
        limit_is="the same pass, keeping the last offset",
        pairs=pairs,
    )


def _seconds(source: Path, config: LogConfig) -> float:
    with copy_of(source, config=config) as log:
        started = time.perf_counter()
        clean_whole(log)
        return time.perf_counter() - started


def _batch(seed: int) -> bytes:
    source, now = random.Random(seed), now_ms()
    records = [
        Record(
            offset=number,
            timestamp=now - source.randrange(10**9),
            key=b"key-%012d" % source.randrange(KEYS),
            value=source.randbytes(VALUE_BYTES),
            headers=((HEADER, struct.pack(">q", source.randrange(10**9))),),
        )
        for number in range(RECORDS_EACH_BATCH)
    ]
    return bytes(build_batch(records))


def _cycled(templates: list[bytes], count: int) -> Iterator[bytes]:
    return (templates[number % len(templates)] for number in range(count))

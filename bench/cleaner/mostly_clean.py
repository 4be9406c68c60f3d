"""The cost of cleaning a topic that is 95 % clean, compared with a full rewrite.

Its clean segments have key sidecars from the pass that cleaned them; the dirty ones have none yet.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.base.batches import NumberedBatch
from bench.base.disk import read_and_write, size_of
from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import (
    build_log,
    clean_whole,
    copy_of,
    extend_log,
    fresh_copy,
    opened,
)

RECORDS_EACH_BATCH = 1000
VALUE_BYTES = 1000
BATCHES = 1200
DIRTY_BATCHES = BATCHES // 20
CLEAN_RECORDS = (BATCHES - DIRTY_BATCHES) * RECORDS_EACH_BATCH
SPREAD = CLEAN_RECORDS // (DIRTY_BATCHES * RECORDS_EACH_BATCH)
"""If the dirty records are of all keys, they are of every SPREAD-th one."""


def mostly_clean_figures(pairs: int) -> list[Figure]:
    """Measure both shapes. Goal: at most 0.2 of a full rewrite if the dirty 5 % are of hot keys."""
    with tempfile.TemporaryDirectory() as folder:
        hot, spread = Path(folder) / "hot", Path(folder) / "spread"
        build_clean(hot)
        shutil.copytree(hot, spread)
        extend_log(hot, batches(hot_keys()))
        extend_log(spread, batches(spread_keys()))
        written: dict[Path, int] = {}

        def seconds(source: Path) -> float:
            with copy_of(source) as log:
                started = time.perf_counter()
                report = clean_whole(log)
                written[source] = report.bytes_written
                return time.perf_counter() - started

        of_hot_keys = interleaved(
            "95 % clean, the rest of hot keys",
            "s a pass",
            lambda: seconds(hot),
            lambda: seconds(spread),
            limit_is="a full rewrite: the same, the rest of all keys",
            pairs=pairs,
        )
        of_all_keys = interleaved(
            "95 % clean, the rest of all keys",
            "s a pass",
            lambda: seconds(spread),
            lambda: probe_seconds(spread, written[spread]),
            limit_is="reading once, writing and syncing as many bytes",
            pairs=pairs,
        )
        size = size_of(hot) / 1e9
        notes = [f"{written[each] / 1e9:.2f} GB written of {size:.2f} GB" for each in (hot, spread)]
    return [replace(of_hot_keys, note=notes[0]), replace(of_all_keys, note=notes[1])]


def probe_seconds(source: Path, bytes_written: int) -> float:
    with fresh_copy(source) as copy:
        return read_and_write(copy, bytes_written, reads=1)


def build_clean(directory: Path) -> None:
    """Build a log that a pass has cleaned; the values of the keys that will be hot came last."""
    directory.mkdir()
    build_log(directory, batches(cold_keys()))
    log = opened(directory)
    clean_whole(log)
    log.close()


def batches(keys: Iterable[range]) -> Iterator[bytes]:
    batch = NumberedBatch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES)
    yield from map(batch.with_keys, keys)


def cold_keys() -> Iterator[range]:
    """Yields each key once; those of the last batch are the hot ones."""
    for start in range(0, CLEAN_RECORDS, RECORDS_EACH_BATCH):
        yield range(start, start + RECORDS_EACH_BATCH)


def hot_keys() -> Iterator[range]:
    for _ in range(DIRTY_BATCHES):
        yield range(CLEAN_RECORDS - RECORDS_EACH_BATCH, CLEAN_RECORDS)


def spread_keys() -> Iterator[range]:
    for start in range(0, DIRTY_BATCHES * RECORDS_EACH_BATCH, RECORDS_EACH_BATCH):
        yield range(start * SPREAD, (start + RECORDS_EACH_BATCH) * SPREAD, SPREAD)

"""Two passes at once: on two threads, as in the broker, and in two processes, which share nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import clean_at, fresh_copy
from bench.cleaner.pass_shapes import LARGE, SMALL, Shape, log_of

SHAPES = (SMALL._replace(records=4_000_000, keys=400_000), LARGE)
PAIRS_MAX = 3
"""Fewer pairs than elsewhere, because one pair takes eight passes and as many copies."""
START_SECONDS = 0.5
"""Longer than a process takes to start."""


def workers_figures(pairs: int) -> list[Figure]:
    """Measure two workers. Goal: they are 1.6 times as fast as one."""
    return [workers_figure(shape, pairs) for shape in SHAPES]


def workers_figure(shape: Shape, pairs: int) -> Figure:
    with log_of(shape) as source:
        return interleaved(
            f"two workers beside one, {shape.label}",
            "times as fast",
            lambda: gain(source, ThreadPoolExecutor),
            lambda: gain(source, processes),
            limit_is="the same passes in two processes beside one: what the second core is worth",
            pairs=min(pairs, PAIRS_MAX),
            note="first passes of two logs, from the page cache",
        )


def processes(count: int) -> Executor:
    return ProcessPoolExecutor(count, get_context("spawn"))


def gain(source: Path, workers: Callable[[int], Executor]) -> float:
    """Returns how much faster two workers clean two logs than one does."""
    return seconds(source, workers(1)) / seconds(source, workers(2))


def seconds(source: Path, workers: Executor) -> float:
    with workers as pool, fresh_copy(source, 0) as one, fresh_copy(source, 1) as other:
        wait([pool.submit(be_ready) for _ in range(2)])
        started = time.perf_counter()
        for done in [pool.submit(clean_at, log) for log in (one, other)]:
            done.result()
        return time.perf_counter() - started


def be_ready() -> None:
    """Occupy a worker until the other one has also started."""
    time.sleep(START_SECONDS)

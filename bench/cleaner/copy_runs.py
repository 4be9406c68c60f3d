"""Two ways to copy untouched batches into another file: copy_file_range, or a write of the read bytes.

A pass reads every byte of a segment that it rewrites, for its CRCs and its keys, so only the writing
differs. Neither way syncs; the figure is CPU time, because a busy disk slows both.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.base.figure import Figure, interleaved

FILE_BYTES = 128 << 20
CHUNK_BYTES = 1 << 20
RUNS = (16 << 10, 128 << 10, CHUNK_BYTES)
"""Lengths of runs of untouched batches."""

Write = Callable[[int, int, memoryview, int], None]


def copy_figures(pairs: int) -> list[Figure]:
    """Measure MB per CPU-second of reading chunks and copying their runs, in both ways."""
    return [copy_figure(run_bytes, pairs) for run_bytes in RUNS]


def copy_figure(run_bytes: int, pairs: int) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        for file in (source, target_of(source)):
            file.write_bytes(os.urandom(FILE_BYTES))
        os.sync()
        return interleaved(
            f"copy_file_range of runs of {run_bytes >> 10} KiB",
            "MB/CPU-s",
            lambda: rate(source, run_bytes, copy_in_kernel),
            lambda: rate(source, run_bytes, write_what_was_read),
            limit_is="pwrite of the bytes that were read",
            pairs=pairs,
        )


def target_of(source: Path) -> Path:
    """Returns the target: a file with allocated pages, whose cost would hide that of the copying."""
    return source.with_name("target")


def rate(source: Path, run_bytes: int, write: Write) -> float:
    reader, writer = os.open(source, os.O_RDONLY), os.open(target_of(source), os.O_WRONLY)
    chunk = memoryview(bytearray(CHUNK_BYTES))
    started = time.process_time()
    for position in range(0, FILE_BYTES, CHUNK_BYTES):
        os.preadv(reader, [chunk], position)
        for at in range(0, CHUNK_BYTES, run_bytes):
            write(reader, writer, chunk[at : at + run_bytes], position + at)
    seconds = time.process_time() - started
    os.close(reader)
    os.close(writer)
    return FILE_BYTES / 1e6 / seconds


def copy_in_kernel(reader: int, writer: int, run: memoryview, position: int) -> None:
    assert os.copy_file_range(reader, writer, len(run), position, position) == len(run)


def write_what_was_read(reader: int, writer: int, run: memoryview, position: int) -> None:
    assert os.pwrite(writer, run, position) == len(run)

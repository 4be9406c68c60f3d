"""Appending fetched runs to a follower's log, beside a raw write of the same bytes.

A run is checked and appended as a mirror does: CRCs, offsets, epochs, producers, indexes, one write. The
figure is CPU time without syncs, because a busy disk slows both. The note has the rate of appends of one
batch at a time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.base.bare_log import identity, opening
from bench.base.batches import keyed_batch
from bench.base.figure import Figure, of_pairs
from protocol.records.batch_header import PRODUCER_ID_AT, read_header, seal, stamp
from protocol.wire.numbers import Epoch, Offset
from storage.batches.batch_run import RUN_BYTES_MAX, check_run
from storage.files.local_files import LocalFileSystem
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from storage.log.opening import create_log

RUNS = 128
PRODUCERS = 50
SHAPES = {"16 KiB": (16, 1_000), "1 KiB": (1, 1_000), "200 B": (1, 100)}
"""The records of a batch, and the bytes of each value."""


def follower_append_figures(pairs: int) -> list[Figure]:
    """Measure appending runs of large, small and very small batches."""
    return [append_figure(label, *shape, pairs) for label, shape in SHAPES.items()]


def append_figure(label: str, records: int, value_bytes: int, pairs: int) -> Figure:
    """Append answers of 1 MiB, and write the same bytes to a file, in turn."""
    answers = fetched(keyed_batch(records=records, value_bytes=value_bytes, keys=9_999, seed=1))
    taken, singles = [], []
    for _ in range(pairs):
        by_runs = rate(answers, lambda log, answer: append(log, answer, RUN_BYTES_MAX))
        taken.append((by_runs, raw_rate(answers)))
        singles.append(rate(answers, lambda log, answer: append(log, answer, 1)))
    return of_pairs(
        f"runs of {label} batches appended to a follower's log",
        "MB/CPU-s",
        taken,
        limit_is="pwrite of 1 MiB each",
        note=f"one batch at a time: {max(singles):.0f} MB/CPU-s",
    )


def fetched(batch: bytes) -> list[memoryview]:
    """Returns answers of about 1 MiB, whose batches follow each other, from several producers."""
    answers, end = [], 0
    for _ in range(RUNS):
        answer = bytearray()
        while len(answer) + len(batch) <= RUN_BYTES_MAX:
            at = len(answer)
            answer += batch
            with memoryview(answer)[at:] as view:
                producer_id = end % PRODUCERS
                view[PRODUCER_ID_AT : PRODUCER_ID_AT + 8] = producer_id.to_bytes(8, "big")
                stamp(view, base_offset=end, leader_epoch=0)
                seal(view)
            end += read_header(batch).record_count
        answers.append(memoryview(bytes(answer)))
    return answers


def append(log: PartitionLog, answer: memoryview, size_max: int) -> None:
    """Append an answer by runs of at most `size_max` bytes, or of one batch."""
    rest = answer
    while len(rest):
        end, epoch = log.log_end_offset, Epoch(log.epochs.latest)
        run = check_run(rest, end=Offset(end), last_epoch=epoch, size_max=size_max)
        log.appender.append_as_follower(run, now_ms=0)
        rest = run.rest


def rate(
    answers: list[memoryview], append_all: Callable[[PartitionLog, memoryview], None]
) -> float:
    """Returns the MB per CPU-second at which a new log takes the answers."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "log"
        log = create_log(
            LocalFileSystem(), identity(directory), LogConfig(), opening(is_clean=True)
        )
        started = time.process_time()
        for answer in answers:
            append_all(log, answer)
        seconds = time.process_time() - started
        log.go_offline("it was measured")
        log.close()
    return sum(map(len, answers)) / 1e6 / seconds


def raw_rate(answers: list[memoryview]) -> float:
    """Returns the MB per CPU-second at which a new file takes the answers."""
    with tempfile.TemporaryDirectory() as folder:
        descriptor = os.open(Path(folder) / "raw", os.O_WRONLY | os.O_CREAT)
        started, position = time.process_time(), 0
        for answer in answers:
            position += os.pwrite(descriptor, answer, position)
        seconds = time.process_time() - started
        os.close(descriptor)
    return position / 1e6 / seconds

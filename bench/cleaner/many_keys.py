"""Cleans 50 million keys with a map of 128 MiB: the number of rewrites, and the memory.

There is one run for any number of pairs, because its results are counted, not timed. The log has no
key sidecars before, so the pass also makes them.

Run as a program it cleans a log once, in its own process, so that its memory can be measured:

    python -m bench.cleaner.many_keys <log>
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.base.batches import NumberedBatch
from bench.base.disk import read_and_write, size_of
from bench.base.figure import Figure, of_pairs
from bench.base.processes import resident_bytes
from bench.cleaner.cleaned_log import build_log, clean_whole, opened
from cleaner.pacing.settings import CleanerSettings
from cleaner.rules.report import PassReport

KEYS = 50_000_000
REWRITTEN_EACH = 5
"""Every fifth key is written once more, so that every segment has superseded records."""
RECORDS_EACH_BATCH = 1000
VALUE_BYTES = 100
MAP_BYTES_A_KEY = 27
"""Bytes per key of a map that holds all keys at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """The cost of cleaning a log to its end."""

    passes: int
    parts: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Peak resident memory, beyond that of the process before."""
    bytes_read: int
    bytes_written: int
    bytes_left: int
    """Bytes in segments and key sidecars."""
    bytes_untouched: int


def many_keys_figures(_: int) -> list[Figure]:
    """Measure one cleaning. Goals: one pass, within the setting, each byte written once."""
    return figures_of(*cleaned())


def cleaned() -> tuple[Cleaning, float, int]:
    """Clean a log. Returns the cost, the probe's seconds, and the log's size in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.mkdir()
        build_log(log, batches())
        os.sync()
        size = size_of(log)
        probe_seconds = read_and_write(log, size * REWRITTEN_EACH // (REWRITTEN_EACH + 1))
        return cleaned_in_a_process(log), probe_seconds, size


def figures_of(taken: Cleaning, probe_seconds: float, size: int) -> list[Figure]:
    label = f"{KEYS // 1_000_000} M keys"
    note = (
        f"{taken.passes} pass, {taken.parts} parts, {taken.seconds:.0f} s,"
        f" {taken.cpu_seconds:.0f} CPU-s, {taken.bytes_read / 1e9:.1f} GB read,"
        f" {taken.bytes_untouched / 1e9:.1f} GB of {size / 1e9:.1f} GB not rewritten"
    )
    map_bytes = CleanerSettings().map_bytes
    return [
        of_pairs(
            f"{label}, memory",
            "MiB",
            [(taken.peak_bytes / (1 << 20), map_bytes / (1 << 20))],
            limit_is="log.cleaner.dedupe.buffer.size, for map and marks; the rest are a pass's buffers",
            note=note,
        ),
        of_pairs(
            f"{label}, memory by key",
            "bytes a key",
            [(taken.peak_bytes / KEYS, MAP_BYTES_A_KEY)],
            limit_is="a map that holds them all at once",
            note=note,
        ),
        of_pairs(
            f"{label}, bytes written",
            "GB",
            [(taken.bytes_written / 1e9, taken.bytes_left / 1e9)],
            limit_is="what is left, with its key sidecars, once",
            note=note,
        ),
        of_pairs(
            f"{label}, rate",
            "MB/s",
            [(size / 1e6 / taken.seconds, size / 1e6 / probe_seconds)],
            limit_is="reading twice, writing and syncing what survives",
            note=note,
        ),
    ]


def batches() -> Iterator[bytes]:
    """Yields every key once, then every fifth once more."""
    batch = NumberedBatch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES)
    for step in (1, REWRITTEN_EACH):
        for start in range(0, KEYS, RECORDS_EACH_BATCH * step):
            yield batch.with_keys(range(start, start + RECORDS_EACH_BATCH * step, step))


def cleaned_in_a_process(log: Path) -> Cleaning:
    command = (sys.executable, "-m", "bench.cleaner.many_keys", str(log))
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    return Cleaning(**json.loads(outcome.stdout))


def clean_to_the_end(directory: Path) -> Cleaning:
    """Clean a log, pass after pass, until nothing is dirty."""
    log = opened(directory)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = resident_bytes(os.getpid())
    started, cpu_started = time.perf_counter(), time.process_time()
    reports: list[PassReport] = []
    while log.clean_offset < log.log_end_offset:
        reports.append(clean_whole(log))
    taken = Cleaning(
        passes=len(reports),
        parts=max(report.parts for report in reports),
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu_started,
        peak_bytes=peak_bytes() - before,
        bytes_read=sum(report.bytes_read for report in reports),
        bytes_written=sum(report.bytes_written for report in reports),
        bytes_untouched=sum(report.bytes_untouched for report in reports),
        bytes_left=sum(path.stat().st_size for path in directory.iterdir()),
    )
    log.close()
    return taken


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(clean_to_the_end(Path(sys.argv[1])))))

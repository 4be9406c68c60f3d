"""50 million keys through a map of 128 MiB: in how many rewrites, and in how much memory.

Run as a program it is one cleaning of a log, in a process of its own, whose memory is then told:

    python -m bench.many_keys <log>
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

from bench.batches import NumberedBatch
from bench.cleaned_log import build_log, clean_whole, copy_of
from bench.disk import read_twice_and_write, size_of
from bench.figure import Figure, of_pairs
from bench.processes import resident_bytes
from cleaner.report import PassReport
from cleaner.settings import CleanerSettings

KEYS = 50_000_000
REWRITTEN_EACH = 5
"""Every fifth key is written once more, so that records die in every segment."""
RECORDS_EACH_BATCH = 1000
VALUE_BYTES = 4
RUNS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What it took to clean a log to its end."""

    passes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    """Memory in RAM at the worst, beyond what the process had before."""
    bytes_written: int
    bytes_left: int


def many_keys_figures(pairs: int) -> list[Figure]:
    """Goals: one pass, within the setting, each byte written once."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "log"
        source.mkdir()
        build_log(source, batches())
        size = size_of(source)
        taken: list[tuple[Cleaning, float]] = []
        for _ in range(min(pairs, RUNS_MAX)):
            cleaned = cleaned_in_a_process(source)
            taken.append((cleaned, read_twice_and_write(source, cleaned.bytes_left)))
    return figures_of(taken, size)


def figures_of(taken: list[tuple[Cleaning, float]], size: int) -> list[Figure]:
    first = taken[0][0]
    label = f"{KEYS // 1_000_000} M keys"
    note = f"{first.passes} passes, {first.cpu_seconds:.0f} CPU-s, {size / 1e9:.1f} GB"
    map_bytes = CleanerSettings().map_bytes
    return [
        of_pairs(
            f"{label}, memory",
            "MiB",
            [(each.peak_bytes / (1 << 20), map_bytes / (1 << 20)) for each, _ in taken],
            limit_is="log.cleaner.dedupe.buffer.size",
            note=note,
        ),
        of_pairs(
            f"{label}, bytes written",
            "GB",
            [(each.bytes_written / 1e9, each.bytes_left / 1e9) for each, _ in taken],
            limit_is="what is left, once",
            note=note,
        ),
        of_pairs(
            f"{label}, rate",
            "MB/s",
            [(size / 1e6 / each.seconds, size / 1e6 / probe) for each, probe in taken],
            limit_is="reading twice, writing and syncing what survives",
            note=note,
        ),
    ]


def batches() -> Iterator[bytes]:
    """Every key once, then every fifth once more, with values of few bytes."""
    batch = NumberedBatch(records=RECORDS_EACH_BATCH, value_bytes=VALUE_BYTES)
    for step in (1, REWRITTEN_EACH):
        for start in range(0, KEYS, RECORDS_EACH_BATCH * step):
            yield batch.with_keys(range(start, start + RECORDS_EACH_BATCH * step, step))


def cleaned_in_a_process(log: Path) -> Cleaning:
    command = (sys.executable, "-m", "bench.many_keys", str(log))
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    return Cleaning(**json.loads(outcome.stdout))


def clean_to_the_end(source: Path) -> Cleaning:
    """Clean a copy of a log, pass after pass, until nothing is dirty."""
    with copy_of(source) as log:
        Path("/proc/self/clear_refs").write_text("5")  # begin the peak anew
        before = resident_bytes(os.getpid())
        started, cpu_started = time.perf_counter(), time.process_time()
        reports: list[PassReport] = []
        while log.clean_offset < log.log_end_offset:
            reports.append(clean_whole(log))
        return Cleaning(
            passes=len(reports),
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu_started,
            peak_bytes=peak_bytes() - before,
            bytes_written=sum(report.bytes_written for report in reports),
            bytes_left=sum(segment.size for segment in log.segments),
        )


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(clean_to_the_end(Path(sys.argv[1])))))

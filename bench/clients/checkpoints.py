"""The cost of a coordinator's checkpoint: of its digest in a load, and of making one beside requests.

Both use the log of `bench.clients.groups`: 1,000,000 committed offsets of 1,000 groups, committed
`COMMITS_UNCLEANED` times, without cleaning.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from bench.base.connection import Connection, connected
from bench.base.figure import Figure, of_pairs
from bench.base.processes import broker_command, free_port, running
from bench.base.raw_protocol import api_versions_request
from bench.clients.groups import (
    COMMITS_UNCLEANED,
    fill,
    remove_checkpoints,
    segments,
)
from cleaner.checkpoints.reading import CheckpointReader
from protocol.records.offset_commits import OffsetScan
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.files.local_files import LocalFileSystem

DIGEST_PERCENT_MAX = 10.0
"""The share of a load that its digest may take."""
DIGEST_PAIRS_MIN = 90
"""The difference of two loads is smaller than their noise, so few pairs do not show it."""
QUIET_SECONDS = 5.0
REPLAY_MS = "replog.replay.ms"
"""Set so low that each partition of 12 MB is due."""


def checkpoint_figures(pairs: int) -> list[Figure]:
    """Measure loads with and without the digest, and requests while checkpoints are made."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        asyncio.run(fill(data, COMMITS_UNCLEANED))
        return [digest_figure(data, pairs), *latency_figures(data, pairs)]


def digest_figure(data: Path, pairs: int) -> Figure:
    """Measure the digest's share of the CPU time that a load of all checkpoints takes."""
    paths = sorted(str(path) for path in checkpoints(data))
    assert paths, "the clean stop has made no checkpoint"
    shares = []
    for number in range(max(pairs, DIGEST_PAIRS_MIN)):
        # The second load of a pair is faster, because it finds the memory that the first has freed.
        sums_first = number % 2 == 0
        seconds = {
            sums: load_cpu_seconds(paths, sums=sums) for sums in (sums_first, not sums_first)
        }
        shares.append((100 * (seconds[True] - seconds[False]) / seconds[True], DIGEST_PERCENT_MAX))
    return of_pairs(
        "share of the digest in a load of checkpoints",
        "%",
        shares,
        limit_is="the share it may take",
        note=f"1,000,000 offsets in {len(paths)} checkpoints; CPU time",
    )


def load_cpu_seconds(paths: list[str], *, sums: bool) -> float:
    """Returns the CPU time of one load. The state stays in memory until its end, as in a broker."""
    gc.collect()
    scans = [OffsetScan(decompressed_bytes_max=DECOMPRESSED_BYTES_MAX) for _ in paths]
    began = time.thread_time()
    for path, scan in zip(paths, scans, strict=True):
        with CheckpointReader(LocalFileSystem(), path) as reader:
            scan.sum_records(sums)
            for piece in reader.pieces():
                scan.feed(piece)
    return time.thread_time() - began


def latency_figures(data: Path, pairs: int) -> list[Figure]:
    """Measure a request at a time while a broker makes all checkpoints, and when it has made them."""
    p99, longest, seconds = [], [], []
    for _ in range(pairs):
        beside, quiet, making_seconds = latencies_ms(data)
        p99.append((quantiles(beside, n=100)[98], quantiles(quiet, n=100)[98]))
        longest.append((max(beside), max(quiet)))
        seconds.append(making_seconds)
    note = f"all checkpoints take {min(seconds):.1f} to {max(seconds):.1f} s; ApiVersions"
    limit = "the same when they are made"
    return [
        of_pairs("request p99 while checkpoints are made", "ms", p99, limit_is=limit, note=note),
        of_pairs("longest request meanwhile", "ms", longest, limit_is=limit, note=note),
    ]


def latencies_ms(data: Path) -> tuple[list[float], list[float], float]:
    """Returns the times of requests beside checkpoints and after them, and how long those took."""
    count = len({path.parent for path in segments(data)})
    remove_checkpoints(data)
    port = free_port()
    command = broker_command(port, data, "log.cleaner.enable=false", f"{REPLAY_MS}=1")
    with running(command, port), connected(port) as connection:
        while not checkpoints(data):
            time.sleep(0.01)
        began = time.perf_counter()
        beside: list[float] = []
        while len(checkpoints(data)) < count:
            beside += asked_ms(connection, seconds=0.05)
        making_seconds = time.perf_counter() - began
        return beside, asked_ms(connection, seconds=QUIET_SECONDS), making_seconds


def asked_ms(connection: Connection, *, seconds: float) -> list[float]:
    """Returns the times of one request after the other."""
    taken, request = [], api_versions_request()
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        connection.ask(request)
        taken.append(1e3 * (time.perf_counter() - began))
    return taken


def checkpoints(data: Path) -> list[Path]:
    """Returns the checkpoints of all partitions."""
    return list(data.glob("__*/*.checkpoint"))

"""Cleaning with Spark as the executor (local[2], one machine) beside the local cleaner, one thread.

Both clean copies of one log: five codecs, one record in ten a tombstone, keys written about five times.
The copies are compared afterwards, batch for batch; a difference is an error, not a figure. Spark is
already running and has cleaned a small log, so that neither its start nor its compilation of the first
query counts; the note has the duration of the start.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.base.bare_log import BACKGROUND, identity
from bench.base.batches import tombstone_batch
from bench.base.figure import Figure, of_pairs
from bench.base.processes import tree_cpu_seconds
from bench.cleaner.cleaned_log import build_log, free_meter, opened
from cleaner.pacing.settings import CleanerSettings
from cleaner.passes.clean import clean
from cleaner.remote.commit import commit
from cleaner.remote.travelling_plan import remote_plan
from cleaner.rules.cleaning_plan import CleaningPlan, plan_pass
from cleaner.rules.pick import assess
from pipeline.cleaning.execute import execute
from pipeline.spark.session import start_session
from protocol.records.record_batch import Codec
from storage.files.local_files import LocalFileSystem
from storage.files.paths import HASH_KEY, LEASES
from storage.log.log import PartitionLog

SIZES = tuple(
    int(size) for size in os.environ.get("KOMPAKT_BENCH_RECORDS", "1000000,10000000").split(",")
)
WARMING_RECORDS = 20_000
RECORDS_EACH_BATCH = 1000
TIMES_WRITTEN = 5
VALUE_BYTES = 100
LEASE = "0" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The cost of a cleaning."""

    seconds: float
    cpu_seconds: float
    """CPU time of this process and all its children."""
    commit_cpu_seconds: float = 0.0
    """The part of it that the broker spends on a remote cleaning."""


def distributed_figures(pairs: int) -> list[Figure]:
    """Measure by how much the local cleaner is better on one machine; there is no goal."""
    started = time.perf_counter()
    session = start_session("bench", pins=())
    start_seconds = time.perf_counter() - started
    try:
        _measured(session, WARMING_RECORDS, 1)
        return [
            figure
            for records in SIZES
            for figure in _figures(records, _measured(session, records, pairs), start_seconds)
        ]
    finally:
        session.stop()


def _figures(
    records: int, taken: list[tuple[Taken, Taken]], start_seconds: float
) -> Iterator[Figure]:
    rates: tuple[tuple[str, Callable[[Taken], float]], ...] = (
        ("records/s", lambda each: records / each.seconds),
        ("records/CPU-s", lambda each: records / each.cpu_seconds),
    )
    for unit, rate in rates:
        yield of_pairs(
            f"{records / 1e6:g} M records, {unit}",
            unit,
            [(rate(spark), rate(local)) for spark, local in taken],
            limit_is="the local cleaner in one thread",
            note=f"the same bytes in every segment; Spark's start took {start_seconds:.0f} s more",
        )
    yield of_pairs(
        f"{records / 1e6:g} M records, CPU time that the broker spends",
        "CPU-s",
        [(spark.commit_cpu_seconds, local.cpu_seconds) for spark, local in taken],
        limit_is="the local cleaner in one thread",
        note="to verify and commit; plans and leases are not counted",
    )


def _measured(session: SparkSession, records: int, pairs: int) -> list[tuple[Taken, Taken]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.mkdir()
        build_log(log, _batches(records))
        return [_pair(session, log) for _ in range(pairs)]


def _pair(session: SparkSession, source: Path) -> tuple[Taken, Taken]:
    """Clean two copies, one after the other, and compare them."""
    spark, local = (source.with_name(name) for name in ("spark", "local"))
    now_ms = int(time.time() * 1000)
    for copy in (spark, local):
        shutil.copytree(source, copy)
    os.sync()
    try:
        with_spark = _timed(lambda: _clean_with_spark(session, spark, now_ms))
        locally = _timed(lambda: _clean_locally(local, now_ms))
        _compare(spark, local)
        return with_spark, locally
    finally:
        for copy in (spark, local):
            shutil.rmtree(copy)


def _timed(work: Callable[[], float]) -> Taken:
    started, cpu_started = time.perf_counter(), tree_cpu_seconds(os.getpid())
    commit_cpu_seconds = work()
    return Taken(
        seconds=time.perf_counter() - started,
        cpu_seconds=tree_cpu_seconds(os.getpid()) - cpu_started,
        commit_cpu_seconds=commit_cpu_seconds,
    )


def _clean_locally(directory: Path, now_ms: int) -> float:
    log = opened(directory)
    settings = CleanerSettings()
    clean(log.cleaning, _plan(log, now_ms), settings, meter=free_meter(), monotonic=time.monotonic)
    BACKGROUND.drain()
    log.close()
    return 0.0


def _clean_with_spark(session: SparkSession, directory: Path, now_ms: int) -> float:
    """Clean with Spark. Returns the CPU seconds of the commit."""
    log = opened(directory)
    settings = CleanerSettings()
    plan = _plan(log, now_ms)
    leased = remote_plan(
        plan,
        lease=LEASE,
        log_dir=str(directory.parent),
        directory=directory.name,
        decompressed_bytes_max=settings.decompressed_bytes_max,
    )
    LocalFileSystem().write_bytes(str(directory.parent / HASH_KEY), identity(directory).hash_key)
    folder = directory.parent / LEASES / LEASE
    folder.mkdir(parents=True)
    (done,) = execute(session, [leased], enter=lambda _step: None)
    assert done.error is None, done.error
    commit_started = time.process_time()
    commit(
        log,
        plan,
        str(folder),
        done.result,
        settings,
        meter=free_meter(),
        monotonic=time.monotonic,
    )
    BACKGROUND.drain()
    commit_cpu_seconds = time.process_time() - commit_started
    shutil.rmtree(folder)
    log.close()
    return commit_cpu_seconds


def _plan(log: PartitionLog, now_ms: int) -> CleaningPlan:
    """Returns the plan of a pass over everything dirty, at the same time for both."""
    view = log.cleaning_view()
    assessment = assess(view, view.config, now_ms, requested=True)
    return plan_pass(view, assessment, now_ms=now_ms, stamp_ms=now_ms)


def _compare(one: Path, other: Path) -> None:
    """Check that two logs hold the same batches, to the byte. Raises AssertionError."""
    logs = [opened(each) for each in (one, other)]
    views = [log.cleaning_view() for log in logs]
    try:
        assert len({view.clean_offset for view in views}) == 1
        for ours, theirs in zip(*(view.segments for view in views), strict=True):
            assert ours.row.base_offset == theirs.row.base_offset
            assert ours.read_at(0, ours.row.size) == theirs.read_at(0, theirs.row.size)
    finally:
        for log in logs:
            log.close()


def _batches(records: int) -> Iterator[bytes]:
    """Yields batches from a fifth as many distinct ones, whose keys also occur in other batches."""
    source = random.Random(records)
    keys = records // TIMES_WRITTEN
    codecs = list(Codec)
    distinct = [
        tombstone_batch(
            records=RECORDS_EACH_BATCH,
            value_bytes=VALUE_BYTES,
            keys=keys,
            seed=number,
            codec=codecs[number % len(codecs)],
        )
        for number in range(max(keys // RECORDS_EACH_BATCH, 1))
    ]
    for _ in range(records // RECORDS_EACH_BATCH):
        yield source.choice(distinct)

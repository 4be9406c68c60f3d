"""What a sweep for expired values costs (`compaction.ttl.ms`), beside making the key sidecars.

nothing expired     each byte is read, and no value is old enough
a tenth expired     a tenth of the records are candidates, which later records of their keys outrank,
                    or which get tombstones; this makes the key sidecars, too
the next sweep      200,000 records later it reads these, and what is due
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

from bench.base.bare_log import now_ms
from bench.base.figure import Figure, interleaved
from bench.cleaner.cleaned_log import CONFIG, copy_of, free_meter, opened
from bench.cleaner.keyed_log import AGE_MS_MAX, extend, keyed_log
from bench.cleaner.sidecars import seconds_of_indexing
from cleaner.expiry.sweep import Sweep, SweepPlan
from cleaner.pacing.settings import CleanerSettings
from cleaner.rules.due_ranges import Ranges
from cleaner.rules.expiry_report import ExpiryReport
from storage.batches.validate import Refused, ValidBatch
from storage.formats.log_config import LogConfig
from storage.log.appender import Appended
from storage.log.log import PartitionLog

YEAR_MS = 365 * 86_400_000
NOTHING_EXPIRED = replace(CONFIG, compaction_ttl_ms=YEAR_MS)
A_TENTH_EXPIRED = replace(CONFIG, compaction_ttl_ms=AGE_MS_MAX * 9 // 10)


def expiry_figures(pairs: int) -> list[Figure]:
    """Measure sweeps over four million records, and one after 200,000 more."""
    with keyed_log() as source:
        first = [
            _figure("first sweep, nothing expired", source, NOTHING_EXPIRED, pairs),
            _figure("first sweep, a tenth expired", source, A_TENTH_EXPIRED, pairs),
        ]
        swept = source.with_name("swept")
        shutil.copytree(source, swept)
        known = _ranges_after_a_sweep(swept, NOTHING_EXPIRED)
        extend(swept)
        return [*first, _next_figure(swept, known, pairs)]


def _figure(name: str, source: Path, config: LogConfig, pairs: int) -> Figure:
    _, report = _swept_copy(source, config)
    figure = interleaved(
        name,
        "s",
        lambda: _swept_copy(source, config)[0],
        lambda: seconds_of_indexing(source),
        limit_is="making the key sidecars",
        pairs=pairs,
    )
    note = f"{report.expired:,} candidates, {report.tombstones:,} tombstones"
    return replace(figure, note=note)


def _next_figure(swept: Path, known: Ranges, pairs: int) -> Figure:
    return interleaved(
        "next sweep, after 200,000 records",
        "s",
        lambda: _swept_copy(swept, NOTHING_EXPIRED, known)[0],
        lambda: _swept_copy(swept, NOTHING_EXPIRED)[0],
        limit_is="a first sweep over the same log",
        pairs=pairs,
    )


def _swept_copy(source: Path, config: LogConfig, known: Ranges = ()) -> tuple[float, ExpiryReport]:
    """Sweep a copy of a log. Returns the seconds that it took, and its report."""
    with copy_of(source, config=config) as log:
        started = time.perf_counter()
        report = _sweep(log, known)
        return time.perf_counter() - started, report


def _ranges_after_a_sweep(directory: Path, config: LogConfig) -> Ranges:
    log = opened(directory, config)
    known = _sweep(log, ()).ranges
    log.close()
    return known


def _sweep(log: PartitionLog, known: Ranges) -> ExpiryReport:
    """Sweep a log in this thread, in the steps of the cleaner's pool."""
    log.advance_high_watermark(log.log_end_offset)
    plan = SweepPlan(view=log.cleaning_view(as_if_rolled=True), now_ms=now_ms(), ranges=known)
    sweep = Sweep(log, plan, CleanerSettings(), meter=free_meter(), now_ms=now_ms)
    while sweep.next_round():
        while sweep.prepare():
            assert sweep.append(_append), "nobody else appends"
    return sweep.report(0.0)


def _append(log: PartitionLog, batch: ValidBatch) -> Appended:
    appended = log.appender.append_as_leader(batch, now_ms=now_ms())
    assert not isinstance(appended, Refused), appended.message
    return appended

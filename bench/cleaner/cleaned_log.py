"""A log on the real disk for repeated cleaning: built once, copied for each measurement."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.base.bare_log import BACKGROUND, identity, now_ms, opening
from cleaner.pacing.meter import PassMeter
from cleaner.pacing.probe import SilentProbe
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import Throttle
from cleaner.passes.clean import clean
from cleaner.passes.index import SegmentIndex
from cleaner.rules.cleaning_plan import CleaningPlan, plan_pass
from cleaner.rules.pick import assess
from cleaner.rules.report import PassReport
from protocol.records.batch_header import stamp
from server.run import HEAP_BLOCK_BYTES_MAX
from storage.batches.validate import Refused, validate_batch
from storage.files.local_files import LocalFileSystem
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from storage.log.opening import create_log, open_log

SEGMENT_BYTES = 128 << 20
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES)


def build_log(directory: Path, batches: Iterable[bytes]) -> None:
    """Write a log of the batches, rolled and closed cleanly."""
    log = create_log(LocalFileSystem(), identity(directory), CONFIG, opening(is_clean=True))
    _write(log, batches)


def extend_log(directory: Path, batches: Iterable[bytes]) -> None:
    """Append batches to a log, rolled and closed cleanly."""
    _write(opened(directory), batches)


def opened(directory: Path, config: LogConfig = CONFIG) -> PartitionLog:
    """Open a log that was closed cleanly."""
    return open_log(LocalFileSystem(), identity(directory), config, opening(is_clean=True))


def _write(log: PartitionLog, batches: Iterable[bytes]) -> None:
    for batch in batches:
        copy = bytearray(batch)
        stamp(copy, base_offset=0, leader_epoch=-1)
        valid = validate_batch(memoryview(copy), log.validation_rules(now_ms=now_ms()))
        assert not isinstance(valid, Refused), valid.message
        log.appender.append_as_leader(valid, now_ms=now_ms())
    log.roll(now_ms())
    BACKGROUND.drain()
    log.close()


@contextmanager
def fresh_copy(directory: Path, number: int = 0) -> Iterator[Path]:
    """Copy a log, in the page cache and on disk, and remove the copy afterwards."""
    copy = directory.with_name(f"{directory.name}-copy-{number}")
    shutil.copytree(directory, copy)
    os.sync()
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


@contextmanager
def copy_of(directory: Path, number: int = 0, config: LogConfig = CONFIG) -> Iterator[PartitionLog]:
    """Open a fresh copy of a log for cleaning."""
    with fresh_copy(directory, number) as copy:
        log = opened(copy, config)
        try:
            yield log
        finally:
            log.close()


def clean_whole(log: PartitionLog, *, verify: bool = True) -> PassReport:
    """Run one pass over everything dirty, in this thread, without a throttle.

    Returns when the replaced segments are also removed.
    """
    bytes(HEAP_BLOCK_BYTES_MAX)  # the allocator as in the broker, see server/run.py
    settings = CleanerSettings(verify=verify)
    report = clean(
        log.cleaning, whole_plan(log), settings, meter=free_meter(), monotonic=time.monotonic
    )
    BACKGROUND.drain()
    return report


def clean_at(directory: Path, config: LogConfig = CONFIG) -> None:
    """Open a log, clean it, close it."""
    log = opened(directory, config)
    clean_whole(log)
    log.close()


def index_at(directory: Path) -> None:
    """Make the key sidecars of a log's segments, like a pass that rewrites nothing."""
    log = opened(directory)
    segments = whole_plan(log).segments_from(log.log_start_offset)
    with SegmentIndex(log.identity.hash_key, CleanerSettings(), free_meter()) as index:
        index.index_segments(segments)
    log.close()


def whole_plan(log: PartitionLog) -> CleaningPlan:
    """Returns the plan of a pass over everything dirty."""
    view = log.cleaning_view()
    assessment = assess(view, view.config, now_ms(), requested=True)
    return plan_pass(view, assessment, now_ms=now_ms(), stamp_ms=now_ms())


def free_meter() -> PassMeter:
    """Returns a meter that never throttles or aborts a pass."""
    return PassMeter(
        throttle=Throttle(clock=time.monotonic),
        probe=SilentProbe(),
        sleep=lambda _: False,
        is_stale=lambda: False,
    )

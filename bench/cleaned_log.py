"""A log on the real disk to clean again and again: built once, copied for each measurement."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cleaner.clean import clean
from cleaner.cleaning_plan import CleaningPlan, plan_pass
from cleaner.index import SegmentIndex
from cleaner.meter import PassMeter
from cleaner.pick import assess
from cleaner.probe import SilentProbe
from cleaner.report import PassReport
from cleaner.settings import CleanerSettings
from cleaner.throttle import Throttle
from protocol.record_batch import stamp
from server.background import Background
from server.run import KEPT_BYTES
from storage.local_files import LocalFileSystem
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.log_identity import LogIdentity
from storage.log_opening import LogOpening, create_log, open_log
from storage.topic_partition import TopicPartition
from storage.validate import Refused, validate_batch

SEGMENT_BYTES = 128 << 20
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES)
TOPIC = TopicPartition("bench", 0)
TOPIC_ID = uuid.UUID(int=1)
BACKGROUND = Background()
"""Where replaced segments are removed, as in the broker: beside the pass."""


def now_ms() -> int:
    return int(time.time() * 1000)


def identity(directory: Path) -> LogIdentity:
    return LogIdentity(
        topic_partition=TOPIC,
        topic_id=TOPIC_ID,
        directory=str(directory),
        directory_id="bench",
        hash_key=bytes(range(16)),
    )


def opening(*, is_clean: bool) -> LogOpening:
    return LogOpening(
        leader_epoch=1,
        background=BACKGROUND.submit,
        on_failure=lambda error: None,
        now_ms=now_ms(),
        is_clean=is_clean,
    )


def build_log(directory: Path, batches: Iterable[bytes]) -> None:
    """Write a log of the batches, rolled and closed cleanly."""
    log = create_log(LocalFileSystem(), identity(directory), CONFIG, opening(is_clean=True))
    _write(log, batches)


def extend_log(directory: Path, batches: Iterable[bytes]) -> None:
    """Write more behind what a log has, rolled and closed cleanly."""
    _write(opened(directory), batches)


def opened(directory: Path) -> PartitionLog:
    """A log that was closed cleanly."""
    return open_log(LocalFileSystem(), identity(directory), CONFIG, opening(is_clean=True))


def _write(log: PartitionLog, batches: Iterable[bytes]) -> None:
    for batch in batches:
        copy = bytearray(batch)
        stamp(copy, base_offset=0, leader_epoch=-1)
        valid = validate_batch(memoryview(copy), log.validation_rules(now_ms=now_ms()))
        assert not isinstance(valid, Refused), valid.message
        log.append_as_leader(valid, now_ms=now_ms())
    log.roll(now_ms())
    BACKGROUND.drain()
    log.close()


@contextmanager
def fresh_copy(directory: Path, number: int = 0) -> Iterator[Path]:
    """A copy of a log, in the page cache and on disk; it is gone afterwards."""
    copy = directory.with_name(f"{directory.name}-copy-{number}")
    shutil.copytree(directory, copy)
    os.sync()
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


@contextmanager
def copy_of(directory: Path, number: int = 0) -> Iterator[PartitionLog]:
    """A fresh copy of a log, open and ready to be cleaned."""
    with fresh_copy(directory, number) as copy:
        log = opened(copy)
        try:
            yield log
        finally:
            log.close()


def clean_whole(log: PartitionLog, *, verify: bool = True) -> PassReport:
    """One pass over all that is dirty, in this thread, at no throttle.

    It is over when what it has replaced is removed, too.
    """
    bytes(KEPT_BYTES)  # the allocator as in the broker, see server/run.py
    settings = CleanerSettings(verify=verify)
    report = clean(log, whole_plan(log), settings, meter=free_meter(), monotonic=time.monotonic)
    BACKGROUND.drain()
    return report


def clean_at(directory: Path) -> None:
    """Open a log, clean it, close it."""
    log = opened(directory)
    clean_whole(log)
    log.close()


def index_at(directory: Path) -> None:
    """Give a log's segments their key sidecars, as a pass does that finds nothing to rewrite."""
    log = opened(directory)
    segments = whole_plan(log).segments_from(log.log_start_offset)
    with SegmentIndex(log.identity.hash_key, CleanerSettings(), free_meter()) as index:
        index.of(segments)
    log.close()


def whole_plan(log: PartitionLog) -> CleaningPlan:
    """A pass over all that is dirty."""
    view = log.cleaning_view()
    assessment = assess(view, view.config, now_ms(), requested=True)
    return plan_pass(view, assessment, now_ms=now_ms(), stamp_ms=now_ms())


def free_meter() -> PassMeter:
    """A meter that never holds a pass and never ends it."""
    return PassMeter(
        throttle=Throttle(clock=time.monotonic),
        probe=SilentProbe(),
        sleep=lambda _: False,
        is_stale=lambda: False,
    )

"""Syncs of one log, and when flush.messages and flush.ms ask for one."""

from __future__ import annotations

import dataclasses
import errno
from random import Random

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import LogOffline, SyncFailed
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import SMALL, Deferred, LogHome
from tests.harness.memory_fs import Loss, MemoryFileSystem

PAIR = (b"key", b"value")


def log_with(home: LogHome, **settings: int) -> PartitionLog:
    log = home.create()
    log.update_config(dataclasses.replace(SMALL, **settings))  # type: ignore[arg-type]
    return log


def append(log: PartitionLog, count: int, now_ms: int = 0) -> None:
    log.appender.append_as_leader(valid(batch_of([PAIR] * count)), now_ms=now_ms)


@pytest.fixture
def home() -> LogHome:
    return LogHome(MemoryFileSystem())


def test_flush_messages_counts_records_since_the_last_sync(home: LogHome) -> None:
    log = log_with(home, flush_messages=5)
    append(log, 4)
    assert not log.is_flush_due()
    append(log, 1)
    assert log.is_flush_due()

    log.sync()

    assert not log.is_flush_due()
    append(log, 4)
    assert not log.is_flush_due()


def test_flush_ms_counts_from_the_first_record_that_no_sync_covers(home: LogHome) -> None:
    log = log_with(home, flush_ms=100)
    assert not log.is_flush_due(10_000)
    append(log, 1, now_ms=1_000)
    append(log, 1, now_ms=1_090)
    assert not log.is_flush_due(1_099)
    assert log.is_flush_due(1_100)

    log.sync()

    assert not log.is_flush_due(10_000)
    append(log, 1, now_ms=20_000)
    assert not log.is_flush_due(20_099)
    assert log.is_flush_due(20_100)


def test_by_default_neither_asks_for_a_sync(home: LogHome) -> None:
    log = log_with(home)
    append(log, 100)
    assert not log.is_flush_due()
    assert not log.is_flush_due(1 << 50)


def test_an_append_during_a_sync_waits_for_the_next_one(home: LogHome) -> None:
    log = log_with(home, flush_messages=2, flush_ms=100)
    append(log, 2)
    disk = home.fs
    assert isinstance(disk, MemoryFileSystem)

    def append_meanwhile(action: str, _: str) -> None:
        disk.on_operation = None
        append(log, 3, now_ms=50)

    disk.on_operation = append_meanwhile
    log.sync()

    assert log.is_flush_due()
    assert log.is_flush_due(150)


def test_appends_after_a_truncation_are_counted_again(home: LogHome) -> None:
    log = log_with(home, flush_messages=2)
    append(log, 3)
    log.sync()
    log.truncate_to(Offset(0))
    append(log, 1)
    assert not log.is_flush_due()
    append(log, 1)
    assert log.is_flush_due()


def test_a_failed_flush_takes_the_directory_offline(home: LogHome) -> None:
    log = log_with(home, flush_messages=1)
    append(log, 1)
    assert isinstance(home.fs, MemoryFileSystem)
    home.fs.faults.fail("sync", errno.EIO, path=".log")

    with pytest.raises(SyncFailed):
        log.sync()

    assert [type(error) for error in home.failures] == [SyncFailed]


def test_failed_sync_is_final(home: LogHome) -> None:
    log = home.create()
    append(log, 1)
    home.fs.faults.fail("sync", errno.EIO)  # type: ignore[attr-defined]
    with pytest.raises(SyncFailed):
        log.sync()
    assert [type(failure) for failure in home.failures] == [SyncFailed]
    with pytest.raises(LogOffline):
        append(log, 1)
    assert log.high_watermark == 0


def test_sync_covers_what_was_written_to_a_segment_before_it_was_sealed() -> None:
    """An append and a roll between a sync's start and its end must not count as synced."""
    disk = MemoryFileSystem()
    log = LogHome(disk, background=Deferred(inline=False)).create()
    append(log, 1)

    def append_and_roll(action: str, path: str) -> None:
        if action == "sync" and path.endswith(".log"):
            disk.on_operation = None
            append(log, 1)
            log.roll(0)

    disk.on_operation = append_and_roll
    assert log.sync() == 1
    assert log.sync() == 2
    left = LogHome(disk.after_crash(Loss.EVERYTHING, Random(0)))
    assert left.open().log_end_offset == 2

"""Sync rounds: what they make durable, and what a sync that fails means for whom."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from random import Random

import pytest

from storage.log import Appended, PartitionLog
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.meta_properties import MetaProperties
from storage.wal import SYNC_THREADS, Synced, Wal
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred
from tests.harness.memory_fs import Loss, MemoryFileSystem

META = MetaProperties(cluster_id="c" * 22, node_id=1, directory_id="d" * 22)
TOPIC_ID = uuid.UUID(int=3)
MANY = 2 * SYNC_THREADS + 3


def opened(disk: MemoryFileSystem, path: str = "/data") -> LogDirectory:
    return LogDirectory(
        disk,
        path,
        META,
        background=Deferred(),
        now_ms=lambda: 0,
        random_bytes=bytes,
    )


def logs_in(directory: LogDirectory, count: int) -> tuple[PartitionLog, ...]:
    return tuple(directory.create_logs("orders", TOPIC_ID, LogConfig(), range(count)))


def append(wal: Wal, log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        batch = valid(batch_of([(b"k", bytes(60))]))
        assert isinstance(log.append_as_leader(batch, now_ms=0), Appended)
        wal.mark_dirty(log)


@pytest.fixture
def wal() -> Iterator[Wal]:
    wal = Wal()
    yield wal
    wal.close()


@pytest.mark.parametrize("count", [1, 2, 12, MANY])
def test_a_round_syncs_every_dirty_log_once_and_says_how_far(wal: Wal, count: int) -> None:
    disk = MemoryFileSystem()
    logs = logs_in(opened(disk), count)
    for number, log in enumerate(logs):
        append(wal, log, number % 3 + 1)
    assert wal.has_dirty

    synced = wal.sync_round()

    assert set(synced) == {Synced(log, number % 3 + 1) for number, log in enumerate(logs)}
    assert len(synced) == len(logs)
    assert not wal.has_dirty
    left = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    for number, log in enumerate(logs):
        again = left.open_log(log.topic_partition, TOPIC_ID, LogConfig())
        assert again.log_end_offset == number % 3 + 1


def test_a_round_without_dirty_logs_does_nothing(wal: Wal) -> None:
    assert wal.sync_round() == ()


def test_a_failed_sync_acknowledges_nothing_and_is_not_retried(wal: Wal) -> None:
    disk = MemoryFileSystem()
    (log,) = logs_in(opened(disk), 1)
    append(wal, log)
    disk.faults.fail("sync", errno.EIO)

    assert wal.sync_round() == ()

    assert log.offline_reason is not None
    wal.mark_dirty(log)
    assert wal.sync_round() == ()
    assert log.high_watermark == 0


def test_a_failed_sync_acknowledges_nothing_of_its_directory(wal: Wal) -> None:
    disk = MemoryFileSystem()
    logs = logs_in(opened(disk), MANY)
    for log in logs:
        append(wal, log)
    disk.faults.fail("sync", errno.EIO, path="/20/")

    assert wal.sync_round() == ()

    assert all(log.offline_reason is not None for log in logs)


def test_a_failed_sync_does_not_keep_the_round_from_another_directorys_logs(wal: Wal) -> None:
    """Nobody may wait for them: what acks=1 has written becomes readable only by this round."""
    disk = MemoryFileSystem()
    broken = logs_in(opened(disk, "/broken"), MANY)
    sound = logs_in(opened(disk, "/sound"), MANY)
    for log in (*broken, *sound):
        append(wal, log)
    disk.faults.fail("sync", errno.EIO, path="/broken")

    assert {synced.log for synced in wal.sync_round()} == set(sound)

"""Sync rounds: which logs they make durable, and what a failed sync means for each log."""

from __future__ import annotations

import errno
import os
import select
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import cast

import pytest

from protocol.wire.numbers import Offset
from storage.files.errors import SyncFailed
from storage.files.files import BegunSync, FileSystem
from storage.files.local_files import LocalFileSystem
from storage.files.sync_threads import SyncThreads
from storage.formats.log_config import LogConfig
from storage.formats.meta_properties import MetaProperties
from storage.log.appender import Appended
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.log.sync_rounds import SYNC_THREADS, Synced, SyncRounds
from tests.harness.log_builder import batch_of, valid
from tests.harness.log_home import Deferred
from tests.harness.memory_fs import Loss, MemoryFileSystem

META = MetaProperties(cluster_id="c" * 22, node_id=1, directory_id="d" * 22)
TOPIC_ID = uuid.UUID(int=3)
MANY = 2 * SYNC_THREADS + 3


def opened(disk: FileSystem, path: str = "/data") -> LogDirectory:
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


def append(rounds: SyncRounds, log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        batch = valid(batch_of([(b"k", bytes(60))]))
        assert isinstance(log.appender.append_as_leader(batch, now_ms=0), Appended)
        rounds.mark_dirty(log)


@pytest.fixture
def rounds() -> Iterator[SyncRounds]:
    rounds = SyncRounds()
    yield rounds
    rounds.close()


def test_a_round_for_which_there_are_no_threads_leaves_its_logs_to_the_next_one(
    rounds: SyncRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_workers(_: SyncRounds) -> None:
        raise RuntimeError("can't start new thread")

    logs = logs_in(opened(MemoryFileSystem()), 3)
    for log in logs:
        append(rounds, log)
    with monkeypatch.context() as patch:
        patch.setattr(SyncRounds, "_workers", no_workers)
        with pytest.raises(RuntimeError):
            rounds.sync_round()
        assert rounds.has_dirty
    assert {each.log for each in rounds.sync_round()} == set(logs)


@pytest.mark.parametrize("count", [1, 2, 12, MANY])
def test_a_round_syncs_every_dirty_log_once_and_says_how_far(
    rounds: SyncRounds, count: int
) -> None:
    disk = MemoryFileSystem()
    logs = logs_in(opened(disk), count)
    for number, log in enumerate(logs):
        append(rounds, log, number % 3 + 1)
    assert rounds.has_dirty

    synced = rounds.sync_round()

    assert set(synced) == {Synced(log, Offset(number % 3 + 1)) for number, log in enumerate(logs)}
    assert len(synced) == len(logs)
    assert not rounds.has_dirty
    left = opened(disk.after_crash(Loss.EVERYTHING, Random(0)))
    for number, log in enumerate(logs):
        again = left.open_log(log.topic_partition, TOPIC_ID, LogConfig())
        assert again.log_end_offset == number % 3 + 1


def test_a_round_without_dirty_logs_does_nothing(rounds: SyncRounds) -> None:
    assert rounds.sync_round() == ()


def test_a_failed_sync_acknowledges_nothing_and_is_not_retried(rounds: SyncRounds) -> None:
    disk = MemoryFileSystem()
    (log,) = logs_in(opened(disk), 1)
    append(rounds, log)
    disk.faults.fail("sync", errno.EIO)

    assert rounds.sync_round() == ()

    assert log.offline_reason is not None
    rounds.mark_dirty(log)
    assert rounds.sync_round() == ()
    assert log.high_watermark == 0


def test_a_failed_sync_acknowledges_nothing_of_its_directory(rounds: SyncRounds) -> None:
    disk = MemoryFileSystem()
    logs = logs_in(opened(disk), MANY)
    for log in logs:
        append(rounds, log)
    disk.faults.fail("sync", errno.EIO, path="/20/")

    assert rounds.sync_round() == ()

    assert all(log.offline_reason is not None for log in logs)


def test_a_failed_sync_does_not_keep_the_round_from_another_directorys_logs(
    rounds: SyncRounds,
) -> None:
    """Even if no client waits for them: only this round makes acks=1 records readable."""
    disk = MemoryFileSystem()
    broken = logs_in(opened(disk, "/broken"), MANY)
    sound = logs_in(opened(disk, "/sound"), MANY)
    for log in (*broken, *sound):
        append(rounds, log)
    disk.faults.fail("sync", errno.EIO, path="/broken")

    assert {synced.log for synced in rounds.sync_round()} == set(sound)


class ThreadsThatFail:
    """Rounds that are over at once, with errors that the test sets; a real disk returns none."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.is_over = True
        self.begun: list[int] = []

    def begin(self, descriptors: Sequence[int]) -> None:
        self.begun = list(descriptors)

    def errors_of_round(self) -> list[int]:
        return self.errors

    def close(self) -> None:
        pass


def failing_wal(*errors: int) -> tuple[SyncRounds, ThreadsThatFail]:
    threads = ThreadsThatFail(*errors)
    return SyncRounds(cast("SyncThreads", threads)), threads


def local_logs(folder: Path, count: int, name: str = "data") -> tuple[PartitionLog, ...]:
    logs = logs_in(opened(LocalFileSystem(), str(folder / name)), count)
    for log in logs:
        log.sync()  # Syncs the names of new files, as a first round does.
    return logs


def finish_round(rounds: SyncRounds) -> tuple[Synced, ...]:
    assert select.select([rounds.round_event], [], [], 10)[0]
    os.eventfd_read(rounds.round_event)
    assert rounds.is_round_over
    return rounds.end_round()


@pytest.mark.parametrize("count", [1, 2, MANY])
def test_files_that_need_no_more_are_synced_without_a_worker(
    rounds: SyncRounds, tmp_path: Path, count: int
) -> None:
    logs = local_logs(tmp_path, count)
    for _ in range(3):
        for log in logs:
            append(rounds, log)
        assert rounds.begin_round()
        assert not rounds.has_dirty
        wanted = {Synced(log, log.log_end_offset) for log in logs}
        for log in logs:
            append(rounds, log)  # For the next round.

        assert set(finish_round(rounds)) == wanted
        assert not rounds.is_round_over
        assert rounds.has_dirty


def test_a_round_that_needs_more_than_one_file_of_a_log_is_left_to_the_worker(
    rounds: SyncRounds, tmp_path: Path
) -> None:
    sealed, plain = local_logs(tmp_path, 2)
    for log in (plain, sealed):
        append(rounds, log)
    sealed.roll(now_ms=0)
    append(rounds, sealed)

    assert not rounds.begin_round()

    assert set(rounds.sync_round()) == {Synced(plain, Offset(1)), Synced(sealed, Offset(2))}
    for log in (plain, sealed):
        append(rounds, log)
    assert rounds.begin_round()
    assert set(finish_round(rounds)) == {Synced(plain, Offset(2)), Synced(sealed, Offset(3))}


def test_files_that_only_sync_can_make_safe_are_left_to_the_worker(rounds: SyncRounds) -> None:
    (log,) = logs_in(opened(MemoryFileSystem()), 1)
    append(rounds, log)

    assert not rounds.begin_round()
    assert rounds.has_dirty


def test_a_sync_that_failed_beside_the_loop_is_final_for_its_directory(tmp_path: Path) -> None:
    rounds, threads = failing_wal(0, errno.EIO, 0)
    broken = local_logs(tmp_path, 2, "broken")
    (sound,) = local_logs(tmp_path, 1, "sound")
    for log in (*broken, sound):
        append(rounds, log)

    assert rounds.begin_round()
    assert len(threads.begun) == 3
    synced = rounds.end_round()

    assert synced == (Synced(sound, Offset(1)),)
    assert all(log.offline_reason is not None for log in broken)
    assert sound.offline_reason is None
    rounds.mark_dirty(broken[0])
    assert not rounds.begin_round()
    assert rounds.sync_round() == ()


def test_a_sync_after_a_failed_one_beside_the_loop_fails_too(tmp_path: Path) -> None:
    """The kernel reports a lost write once: a checkpoint's sync of the same file must fail too."""
    rounds, _ = failing_wal(errno.EIO)
    (log,) = local_logs(tmp_path, 1)
    append(rounds, log)
    rounds.begin_round()
    rounds.end_round()

    with pytest.raises(SyncFailed):
        log.sync()


def test_a_log_that_another_thread_is_syncing_does_not_block_the_loop(tmp_path: Path) -> None:
    rounds, _ = failing_wal(0)
    (log,) = local_logs(tmp_path, 1)
    append(rounds, log)
    other = log.begin_sync()
    assert other is not None

    assert not rounds.begin_round()

    other.end(0)
    assert rounds.begin_round()
    assert rounds.end_round() == (Synced(log, Offset(1)),)


def test_where_the_system_has_no_thread_left_the_worker_does_the_round(tmp_path: Path) -> None:
    class NoThreads(ThreadsThatFail):
        def begin(self, descriptors: Sequence[int]) -> None:
            raise RuntimeError("can't start new thread")

    rounds = SyncRounds(cast("SyncThreads", NoThreads()))
    (log,) = local_logs(tmp_path, 1)
    append(rounds, log)

    assert not rounds.begin_round()

    assert rounds.sync_round() == (Synced(log, Offset(1)),)


def test_logs_whose_round_fails_to_begin_in_an_unexpected_way_stay_dirty(
    rounds: SyncRounds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = local_logs(tmp_path, 3)
    for log in logs:
        append(rounds, log)
    begin_sync = PartitionLog.begin_sync

    def fail_for_the_last(log: PartitionLog) -> BegunSync | None:
        if log is logs[2]:
            raise ValueError("a mistake of ours")
        return begin_sync(log)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "begin_sync", fail_for_the_last)
        with pytest.raises(ValueError, match="a mistake of ours"):
            rounds.begin_round()
    assert rounds.has_dirty
    assert rounds.begin_round()  # The syncs that had begun were given up.
    assert {each.log for each in finish_round(rounds)} == set(logs)

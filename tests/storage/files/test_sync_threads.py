"""Rounds of fdatasync on real descriptors: all files, their errors, one round after the other."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.files.sync_threads import SyncThreads

FILES = 40


@pytest.fixture
def threads() -> Iterator[SyncThreads]:
    threads = SyncThreads(4)
    yield threads
    threads.close()


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[list[int]]:
    opened = [
        os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR, 0o600) for number in range(FILES)
    ]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def wait(threads: SyncThreads) -> list[int]:
    assert select.select([threads.fileno()], [], [], 10)[0]
    os.eventfd_read(threads.fileno())
    assert threads.is_over
    return threads.errors_of_round()


@pytest.mark.parametrize("count", [1, 3, 4, 5, FILES])
def test_a_round_is_over_once_when_every_file_is_synced(
    threads: SyncThreads, descriptors: list[int], count: int
) -> None:
    for _ in range(20):
        for descriptor in descriptors[:count]:
            os.write(descriptor, b"record")
        threads.begin(descriptors[:count])
        assert wait(threads) == [0] * count
        with pytest.raises(BlockingIOError):
            os.eventfd_read(threads.fileno())


def test_rounds_of_changing_size_follow_each_other(
    threads: SyncThreads, descriptors: list[int]
) -> None:
    for count in (1, FILES, 2, 7, 1, 30):
        threads.begin(descriptors[:count])
        assert wait(threads) == [0] * count


def test_each_file_has_its_own_error(threads: SyncThreads, descriptors: list[int]) -> None:
    read, write = os.pipe()  # No system can sync a pipe.
    try:
        threads.begin([descriptors[0], write, descriptors[1]])
        assert wait(threads) == [0, errno.EINVAL, 0]
    finally:
        os.close(read)
        os.close(write)


def test_a_round_is_one_at_a_time_and_never_empty(
    threads: SyncThreads, descriptors: list[int]
) -> None:
    with pytest.raises(ValueError, match="needs a file"):
        threads.begin([])
    assert threads.is_over
    threads.begin(descriptors)
    wait(threads)
    threads.begin(descriptors)
    wait(threads)


def test_no_more_threads_are_started_than_files_need(descriptors: list[int]) -> None:
    def running() -> int:
        return sum(thread.name.startswith("fdatasync") for thread in threading.enumerate())

    threads = SyncThreads(4)
    assert running() == 0
    for count, wanted in ((1, 1), (3, 3), (FILES, 4)):
        threads.begin(descriptors[:count])
        wait(threads)
        assert running() == wanted
    threads.close()
    assert running() == 0
    threads.close()

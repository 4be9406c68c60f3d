"""What ends the pool's passes early and what does not: stops, new rates and threads, changed logs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.throttle import IoRates
from protocol.wire.numbers import Offset
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import (
    HOUR_MS,
    PATIENCE_SECONDS,
    RESTS_LONG,
    SETTINGS,
    SLOW,
    House,
    Recorder,
    keys_of,
    paused_of,
    running,
    staged_files,
    until,
)


async def test_a_stop_ends_a_throttled_pass_at_once_and_nothing_is_lost(house: House) -> None:
    log = house.log()
    for number in range(50):
        house.append(log, (b"%d" % (number % 5), b"v" * 100_000))
    log.roll(house.clock.wall_ms)
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(total=1000.0)))
    pool.start()
    await until(lambda: bool(pool.status().running))

    started = time.monotonic()
    await pool.stop()

    assert time.monotonic() - started < PATIENCE_SECONDS
    assert house.probe.events == ["aborted orders"]
    assert len(keys_of(log)) == 50
    assert staged_files(log) == []


async def test_a_cancelled_pass_ends_at_once_and_the_workers_leave_its_log_alone_for_a_while(
    house: House,
) -> None:
    log, other = house.log(), house.log("others")
    for each in (log, other):
        for number in range(50):
            house.append(each, (b"%d" % (number % 5), b"v" * 100_000))
        each.roll(house.clock.wall_ms)
    pool = house.pool(replace(RESTS_LONG, io_rates=SLOW.io_rates))
    async with running(pool):
        await until(lambda: bool(pool.status().running))
        (first,) = pool.status().running

        (stopped,) = pool.cancel({first.topic_partition})

        assert stopped.topic_partition == first.topic_partition
        await until(
            lambda: (
                {each.topic_partition for each in pool.status().running}.isdisjoint(
                    {first.topic_partition}
                )
                and bool(pool.status().running)
            )
        )
        (second,) = pool.status().running
        assert second.topic_partition != first.topic_partition
        assert pool.cancel({first.topic_partition}) == []
        assert await pool.queue() == []
    assert len(keys_of(log)) == len(keys_of(other)) == 50
    assert f"aborted {first.topic_partition.topic}" in house.probe.events


async def test_a_stopped_pool_starts_no_pass(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool()
    pool.start()
    await pool.stop()

    with pytest.raises((CleaningAborted, RuntimeError)):
        await pool.clean_now(log)


async def test_a_rate_set_while_a_pass_sleeps_lets_it_go_on(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(total=1.0)))

    async with running(pool):
        await until(lambda: bool(pool.status().running))
        pool.configure(replace(SETTINGS, io_rates=IoRates(total=1e9)))
        await until(lambda: log.clean_offset == 3)


def workers() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sorted(name for name in names if name.startswith("cleaner-"))


async def test_more_threads_run_more_passes_at_once_and_fewer_stop_none(house: House) -> None:
    logs = [house.dirty_log(topic) for topic in ("a", "b", "c", "d")]

    async with running(house.pool(SLOW)) as pool:
        await until(lambda: len(pool.status().running) == 1)
        pool.configure(replace(SLOW, threads=3))
        await until(lambda: len(pool.status().running) == 3)
        assert (pool.status().threads, len(workers())) == (3, 3)

        pool.configure(replace(SLOW, threads=1))
        assert len(pool.status().running) == 3
        pool.configure(SETTINGS)
        await until(lambda: all(log.clean_offset == 3 for log in logs))
        await until(lambda: workers() == ["cleaner-0"])
        assert pool.dead_workers == 0

        pool.configure(replace(SETTINGS, threads=2))
        await until(lambda: workers() == ["cleaner-0", "cleaner-1"])
    assert sorted(house.probe.events) == [f"completed {topic}" for topic in "abcd"]


async def test_a_thread_that_is_too_many_takes_no_further_log(house: House) -> None:
    first, *_ = (house.dirty_log(topic) for topic in ("a", "b", "c"))

    async with running(house.pool(replace(SLOW, threads=2))) as pool:
        await until(lambda: len(pool.status().running) == 2)
        pool.configure(replace(SLOW, threads=1))
        pool.pause(paused_of(first))
        await until(lambda: len(pool.status().running) == 1)
        await asyncio.sleep(0.05)
        assert len(pool.status().running) == 1


async def test_a_disk_that_gets_full_lifts_the_budgets_of_a_sleeping_pass(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(write=1.0)))

    async with running(pool):
        await until(lambda: bool(pool.status().running))
        pool.short_of_space(frozenset({log.identity.directory_id}))
        await until(lambda: log.clean_offset == 3)


async def test_a_throttled_pass_notices_at_once_that_its_log_has_changed(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, io_rates=IoRates(read=1.0)))

    async with running(pool):
        await until(lambda: bool(pool.status().running))
        log.update_config(replace(log.config, cleanup_policy=("delete",)))
        await until(lambda: house.probe.events == ["aborted orders"])


# Changes of a log whose pass has just read a chunk; no test waits for a rate.


def truncate(log: PartitionLog) -> None:
    log.truncate_to(Offset(1))


def stop_compacting(log: PartitionLog) -> None:
    log.update_config(replace(log.config, cleanup_policy=("delete",)))


def rename_the_policy(log: PartitionLog) -> None:
    log.update_config(replace(log.config, cleanup_policy=("dedupe",)))


class Halting(Recorder):
    """A probe that blocks a pass after its first chunk, and counts the chunks after that."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks_read = 0
        self.has_read = threading.Event()
        self.may_go_on = threading.Event()

    def bytes_read(self, count: int) -> None:
        self.chunks_read += 1
        self.has_read.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(truncate, id="truncation"),
        pytest.param(PartitionLog.retire, id="deletion"),
        pytest.param(stop_compacting, id="policy_change"),
    ],
)
async def test_a_change_of_its_log_ends_a_pass_within_a_chunk(
    house: House, change: Callable[[PartitionLog], None]
) -> None:
    """LogManagerTest, testTopicConfigChangeStopCleaningIfCompactIsRemoved; LogCleanerManagerTest,
    testConcurrentLogCleanupAnd{LogTruncation,TopicDeletion}; LogCleanerTest,
    testCleanSegmentsWithAbort."""
    house.probe = halting = Halting()
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, backoff_ms=HOUR_MS))

    async with running(pool):
        await until(halting.has_read.is_set)
        change(log)
        halting.may_go_on.set()
        await until(lambda: bool(house.probe.events))

    assert house.probe.events == ["aborted orders"]
    assert halting.chunks_read == 1
    assert staged_files(log) == []
    assert not pool.status().quarantined


async def test_a_stop_ends_a_pass_within_a_chunk(house: House) -> None:
    house.probe = halting = Halting()
    log = house.dirty_log()
    pool = house.pool()
    pool.start()
    await until(halting.has_read.is_set)

    stopping = asyncio.create_task(pool.stop())
    await asyncio.sleep(0)
    halting.may_go_on.set()
    await stopping

    assert house.probe.events == ["aborted orders"]
    assert halting.chunks_read == 1
    assert len(keys_of(log)) == 3


async def test_a_log_that_was_truncated_under_its_pass_is_cleaned_by_the_next(house: House) -> None:
    house.probe = halting = Halting()
    log = house.dirty_log()

    async with running(house.pool()):
        await until(halting.has_read.is_set)
        truncate(log)
        house.append(log, (b"a", b"3"))
        log.roll(house.clock.now_ms())
        halting.may_go_on.set()
        await until(lambda: log.clean_offset == 2)

    assert keys_of(log) == [(1, b"a")]


async def test_another_name_of_the_same_policy_does_not_end_a_pass(house: House) -> None:
    house.probe = halting = Halting()
    log = house.dirty_log()

    async with running(house.pool()):
        await until(halting.has_read.is_set)
        rename_the_policy(log)
        halting.may_go_on.set()
        await until(lambda: log.clean_offset == 3)

    assert house.probe.events == ["completed orders"]


# LogCleanerManagerTest, testGrabFilthiestCompactedLog*: which logs a worker takes, in which order.

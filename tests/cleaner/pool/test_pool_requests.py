"""Requests to the pool: passes, rehearsals, pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.paused import NOTHING_PAUSED, CleaningPaused, Paused
from cleaner.pacing.progress import Phase
from cleaner.pool.pool import CleanerPool
from cleaner.pool.runner import RunningPass
from cleaner.pool.status import Task
from cleaner.rules.report import PassReport
from storage.files.errors import DiskError
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog
from tests.cleaner.pool_house import (
    CLEANED,
    SETTINGS,
    SLOW,
    House,
    flip_a_byte,
    keys_of,
    paused_of,
    running,
    staged_files,
    until,
)
from tests.harness.blocked_sidecar import block_sidecar
from tests.harness.compacted_log import CONFIG


# -------------------------------------------------------------------- requests
async def test_clean_now_rolls_and_ignores_the_dirty_ratio(house: House) -> None:
    log = house.log(config=replace(CONFIG, min_cleanable_dirty_ratio=1.0))
    house.append(log, (b"a", b"1"))
    house.append(log, (b"a", b"2"))
    pool = house.pool()

    report = await pool.clean_now(log)
    again = await pool.clean_now(log)
    await pool.stop()

    assert (report.start_offset, report.end_offset, report.reason) == (0, 2, "REQUESTED")
    assert keys_of(log) == [(1, b"a")]
    assert (again.start_offset, again.end_offset, again.groups) == (2, 2, 0)


async def test_a_request_that_comes_while_a_worker_picks_waits_for_its_pass(
    house: House,
) -> None:
    log = house.dirty_log()
    requests: list[asyncio.Task[PassReport]] = []
    loop = asyncio.get_running_loop()

    def ask() -> None:
        if not requests:
            requests.append(loop.create_task(pool.clean_now(log)))

    def logs() -> list[PartitionLog]:
        # A thread lists them; the loop runs this before the worker gets the list.
        loop.call_soon_threadsafe(ask)
        return house.logs

    pool = house.pool(logs=logs)
    async with running(pool):
        await until(lambda: bool(requests))
        report = await requests[0]

    assert report.groups == 0
    assert house.probe.events == ["completed orders"] * 2


async def test_clean_now_refuses_a_log_that_is_not_compacted(house: House) -> None:
    pool = house.pool()

    with pytest.raises(ValueError, match="not compacted"):
        await pool.clean_now(house.log(config=LogConfig()))
    await pool.stop()


async def test_clean_now_tells_what_is_wrong(house: House) -> None:
    log = house.dirty_log()
    block_sidecar(log)
    pool = house.pool()

    with pytest.raises(DiskError):
        await pool.clean_now(log)
    await pool.stop()

    assert len(pool.status().quarantined) == 1


async def test_requests_for_one_log_run_one_after_the_other(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(replace(SETTINGS, threads=2))

    reports = await asyncio.gather(*[pool.clean_now(log) for _ in range(5)])
    await pool.stop()

    assert sorted(report.groups for report in reports) == [0, 0, 0, 0, 1]
    assert keys_of(log) == CLEANED


# -------------------------------------------------------------------- what operators steer
async def test_a_paused_log_is_not_cleaned_until_it_is_resumed(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool()
    pool.pause(paused_of(log))

    async with running(pool):
        await asyncio.sleep(0.1)
        assert log.clean_offset == 0
        pool.pause(NOTHING_PAUSED)
        await until(lambda: log.clean_offset == 3)


async def test_a_pause_stops_a_running_pass_and_not_others_and_is_told_as_the_reason(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="cleaner.pool.pool")
    log, _ = house.dirty_log(), house.dirty_log("other")
    async with running(house.pool(replace(SLOW, threads=2))) as pool:
        await until(lambda: len(pool.status().running) == 2)
        pool.pause(paused_of(log))
        await until(lambda: "aborted orders" in house.probe.events)

        assert [str(each.topic_partition) for each in pool.status().running] == ["other-0"]
    assert "orders-0: cleaning stopped: cleaning was paused" in caplog.messages
    assert staged_files(log) == []
    assert log.clean_offset == 0


async def test_a_pass_on_request_refuses_a_paused_log_unless_forced(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool()
    pool.pause(Paused(everything=True))

    with pytest.raises(CleaningPaused, match="orders-0 is paused"):
        await pool.clean_now(log)
    report = await pool.clean_now(log, despite_pause=True)

    assert report.end_offset == 3
    await pool.stop()


async def test_a_running_pass_says_how_far_it_is(house: House) -> None:
    log = house.dirty_log()
    async with running(house.pool(SLOW)) as pool:
        await until(lambda: bool(pool.status().running))
        await until(lambda: pool.status().running[0].progress.bytes_done > 0)
        (status,) = pool.status().running

        assert status.progress.phase is Phase.INDEX
        assert status.progress.bytes_planned == 2 * log.segments[0].size
        assert status.progress.eta_seconds is not None


async def test_a_rehearsal_changes_nothing_and_keeps_passes_off_the_log(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(SLOW)
    started: list[RunningPass] = []
    rehearsal = asyncio.create_task(pool.dry_run(log, on_start=started.append))
    await until(lambda: bool(started))

    async with running(pool):
        await asyncio.sleep(0.1)
        assert [each.task for each in pool.status().running] == [Task.DRY_RUN]
        pool.configure(SETTINGS)
        found = await rehearsal
        await until(lambda: log.clean_offset == 3)

    assert found.report.records_by_verdict["dropped_superseded"] == 1
    assert house.probe.events == ["completed orders"]


async def test_a_rehearsal_can_be_stopped(house: House) -> None:
    log = house.dirty_log()
    pool = house.pool(SLOW)

    with pytest.raises(CleaningAborted):
        await pool.dry_run(log, on_start=lambda pass_: pass_.halt("nobody waits for it"))
    await pool.stop()


async def test_a_rehearsal_of_a_damaged_log_says_so_and_no_more(house: House) -> None:
    log = house.dirty_log()
    flip_a_byte(log)
    pool = house.pool()

    rehearsed = await pool.dry_run(log)

    assert [fence.base_offset for fence in rehearsed.report.fences] == [0]
    assert pool.status().fenced == {}
    assert pool.status().quarantined == ()
    assert house.probe.events == []
    await pool.stop()


async def test_requests_wait_for_a_thread_and_plan_when_they_have_one(house: House) -> None:
    pool = house.pool(SLOW)
    logs = [house.dirty_log("first"), house.dirty_log("second")]
    started, requests = await two_requests(pool, logs)
    await asyncio.sleep(0.05)
    assert len(started) == 1
    house.append(logs[1], (b"a", b"3"))
    pool.configure(SETTINGS)

    reports = await asyncio.gather(*requests)

    assert [report.end_offset for report in reports] == [3, 4]
    await pool.stop()


async def test_a_request_that_waits_when_the_pool_stops_is_told(house: House) -> None:
    pool = house.pool(SLOW)
    logs = [house.dirty_log("first"), house.dirty_log("second")]
    _, requests = await two_requests(pool, logs)
    await pool.stop()

    ends = await asyncio.gather(*requests, return_exceptions=True)

    assert [type(end) for end in ends] == [CleaningAborted, CleaningAborted]


async def two_requests(
    pool: CleanerPool, logs: Sequence[PartitionLog]
) -> tuple[list[RunningPass], list[asyncio.Task[PassReport]]]:
    """Returns two requests, one of which has started, and the started passes."""
    started: list[RunningPass] = []
    requests = [asyncio.create_task(pool.clean_now(log, on_start=started.append)) for log in logs]
    await until(lambda: bool(started))
    return started, requests

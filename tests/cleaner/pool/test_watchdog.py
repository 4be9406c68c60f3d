"""The watchdog: a task without progress is reported once, with the stack of its thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace

import pytest

from cleaner.pool.runner import Runner
from cleaner.pool.status import Task
from cleaner.pool.watchdog import Watchdog, stack_of
from cleaner.rules.pick import Reason
from storage.log.cleaning_view import CleanableSegment
from tests.cleaner.pool_house import SETTINGS, SLOW, House, keys_of, running, until

AT_ONCE = replace(SETTINGS, stalled_ms=0)


async def test_a_pass_whose_disk_does_not_answer_is_reported_once_with_its_stack(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, reads, answers = house.dirty_log(), threading.Event(), threading.Event()
    read_at = CleanableSegment.read_at

    def a_disk_that_hangs(segment: CleanableSegment, position: int, size: int) -> bytes:
        reads.set()
        assert answers.wait(60)
        return read_at(segment, position, size)

    monkeypatch.setattr(CleanableSegment, "read_at", a_disk_that_hangs)
    pool = house.pool(AT_ONCE)
    async with running(pool):
        await until(reads.is_set)
        with caplog.at_level(logging.ERROR):
            pool._watchdog.look()
            pool._watchdog.look()
        stalled = pool.stalled_tasks
        answers.set()
        await until(lambda: not pool.status().running)

    assert stalled == 1
    assert pool.stalled_tasks == 0
    (record,) = [each for each in caplog.records if "has made no progress" in each.message]
    assert "orders-0: the task clean" in record.message
    assert "a_disk_that_hangs" in record.message
    assert house.probe.events.count("stalled orders") == 1
    assert keys_of(log)


async def test_a_pass_that_sleeps_for_the_throttle_makes_progress(house: House) -> None:
    log = house.log()
    for number in range(50):
        house.append(log, (b"%d" % number, b"v" * 100_000))
    log.roll(house.clock.wall_ms)
    pool = house.pool(replace(SLOW, stalled_ms=5_000))
    async with running(pool):
        await until(lambda: bool(pool.status().running))
        (task,) = pool._runner.tasks
        # It sleeps in naps of 0.2 s.
        beats = set[float]()
        async with asyncio.timeout(30):
            while len(beats) < 4:
                beats.add(task.progress._beat_at)
                await asyncio.sleep(0.01)
        assert pool.stalled_tasks == 0


async def test_a_task_that_has_no_thread_yet_has_not_stalled(house: House) -> None:
    log = house.dirty_log()
    runner = Runner(AT_ONCE, clock=house.clock, probe=house.probe)
    claimed = runner.claim(log, Task.CLEAN, Reason.REQUESTED)

    assert Watchdog(runner, house.probe).stalled == ()

    claimed.thread_id = threading.get_ident()
    assert Watchdog(runner, house.probe).stalled == (claimed,)
    runner.release(claimed)
    await runner.drain()


def test_the_stack_of_a_thread_that_has_ended_is_none() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    ident = thread.ident
    thread.join()

    assert stack_of(ident) == "(the thread has ended)"
    assert "test_the_stack_of_a_thread" in stack_of(threading.get_ident())

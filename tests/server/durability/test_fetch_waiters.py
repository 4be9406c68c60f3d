"""Parked fetches: which event wakes which fetch, and that nothing of it remains."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from server.durability.fetch_waiters import LOGS_PER_TURN, WAKES_PER_TURN, FetchWaiters, ParkedFetch
from storage.log.log import PartitionLog


def some_log() -> PartitionLog:
    """Returns a stand-in for a log: only its identity matters here."""
    return cast("PartitionLog", object())


def parked_for(waiters: FetchWaiters, *logs: PartitionLog) -> ParkedFetch:
    parked = waiters.park()
    for log in logs:
        parked.watch(log)
    return parked


async def test_a_log_wakes_the_fetches_that_named_it_and_no_other() -> None:
    waiters, orders, users = FetchWaiters(), some_log(), some_log()
    both, one = parked_for(waiters, orders, users), parked_for(waiters, users)
    waits = [asyncio.ensure_future(both.wait(5)), asyncio.ensure_future(one.wait(5))]
    await asyncio.sleep(0)

    waiters.wake(orders)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [wait.done() for wait in waits] == [True, False]
    assert both.take_woken() == [orders]
    one.cancel()
    await asyncio.gather(*waits)


async def test_a_change_between_parking_and_waiting_is_not_missed() -> None:
    waiters, log = FetchWaiters(), some_log()
    parked = parked_for(waiters, log)
    waiters.wake(log)

    async with asyncio.timeout(30):
        await parked.wait(60)

    assert parked.take_woken() == [log]


async def test_a_wait_ends_when_its_time_is_over() -> None:
    waiters, log = FetchWaiters(), some_log()
    parked = parked_for(waiters, log)
    start = time.monotonic()

    await parked.wait(0.05)

    assert 0.045 <= time.monotonic() - start < 30
    assert not parked.is_woken


async def test_a_fetch_can_wait_again_for_the_rest_of_its_time() -> None:
    waiters, log = FetchWaiters(), some_log()
    parked = parked_for(waiters, log)
    waiters.wake(log)
    await parked.wait(5)
    parked.take_woken()
    again = asyncio.ensure_future(parked.wait(5))
    await asyncio.sleep(0)
    assert not again.done()

    waiters.wake(log)

    async with asyncio.timeout(30):
        await again


async def test_a_fetch_that_has_left_is_forgotten() -> None:
    waiters, log = FetchWaiters(), some_log()
    first, second = parked_for(waiters, log, log), parked_for(waiters, log)
    assert waiters.parked_count == 2

    first.leave()
    second.leave()
    waiters.wake(log)

    assert waiters.parked_count == 0
    assert not first.is_woken
    assert not waiters._by_log


async def test_a_turn_wakes_few_of_many_fetches_and_all_of_them_in_the_end() -> None:
    waiters, log = FetchWaiters(), some_log()
    many = [parked_for(waiters, log) for _ in range(1000)]

    woken: list[ParkedFetch] = []
    waiters.wake(log)
    while len(woken) < len(many):
        now = [parked for parked in many if parked.take_woken()]
        assert 0 < len(now) <= WAKES_PER_TURN
        woken += now
        await asyncio.sleep(0)

    assert len(set(woken)) == len(many)


async def test_a_fetch_alone_on_its_log_does_not_wait_for_the_many_of_another() -> None:
    waiters, busy, quiet = FetchWaiters(), some_log(), some_log()
    for _ in range(10_000):
        parked_for(waiters, busy)
    alone = parked_for(waiters, quiet)

    for _ in range(3):
        waiters.wake(busy)
    waiters.wake(quiet)
    turns = 0
    while not alone.is_woken:
        await asyncio.sleep(0)
        turns += 1

    assert turns <= 1


async def test_a_change_while_the_fetches_of_a_log_are_being_woken_wakes_them_again() -> None:
    waiters, log = FetchWaiters(), some_log()
    many = [parked_for(waiters, log) for _ in range(WAKES_PER_TURN + 1)]
    waiters.wake(log)
    early = [parked for parked in many if parked.take_woken()]

    waiters.wake(log)
    for _ in range(4):
        await asyncio.sleep(0)

    assert all(parked.is_woken for parked in early)


async def test_a_fetch_of_very_many_logs_leaves_them_over_several_turns() -> None:
    waiters, logs = FetchWaiters(), [some_log() for _ in range(3 * LOGS_PER_TURN)]
    parked, other = parked_for(waiters, *logs), parked_for(waiters, logs[0])

    parked.leave()
    other.leave()
    assert waiters.parked_count == 0
    assert len(waiters._by_log) == 2 * LOGS_PER_TURN
    for _ in range(3):
        await asyncio.sleep(0)

    assert not waiters._by_log

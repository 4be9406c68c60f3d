"""Parked fetches: who is woken, by what, and what is left behind."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from server.fetch_waiters import FetchWaiters
from storage.log import PartitionLog


def some_log() -> PartitionLog:
    """A log is only an identity here."""
    return cast("PartitionLog", object())


async def test_a_log_wakes_the_fetches_that_named_it_and_no_other() -> None:
    waiters, orders, users = FetchWaiters(), some_log(), some_log()
    both, one = waiters.park([orders, users]), waiters.park([users])
    waits = [asyncio.ensure_future(both.wait(5)), asyncio.ensure_future(one.wait(5))]
    await asyncio.sleep(0)

    waiters.wake(orders)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [wait.done() for wait in waits] == [True, False]
    assert both.woken == {orders}
    one.cancel()
    await asyncio.gather(*waits)


async def test_a_change_between_parking_and_waiting_is_not_missed() -> None:
    waiters, log = FetchWaiters(), some_log()
    parked = waiters.park([log])
    waiters.wake(log)

    async with asyncio.timeout(30):
        await parked.wait(60)

    assert parked.woken == {log}


async def test_a_wait_ends_when_its_time_is_over() -> None:
    waiters, log = FetchWaiters(), some_log()
    parked = waiters.park([log])
    start = time.monotonic()

    await parked.wait(0.05)

    assert 0.045 <= time.monotonic() - start < 30
    assert not parked.woken


async def test_a_fetch_can_wait_again_for_the_rest_of_its_time() -> None:
    waiters, log = FetchWaiters(), some_log()
    parked = waiters.park([log])
    waiters.wake(log)
    await parked.wait(5)
    parked.woken.clear()
    again = asyncio.ensure_future(parked.wait(5))
    await asyncio.sleep(0)
    assert not again.done()

    waiters.wake(log)

    async with asyncio.timeout(30):
        await again


async def test_a_fetch_that_has_left_is_forgotten() -> None:
    waiters, log = FetchWaiters(), some_log()
    first, second = waiters.park([log, log]), waiters.park([log])
    assert waiters.parked_count == 2

    first.leave()
    second.leave()
    waiters.wake(log)

    assert waiters.parked_count == 0
    assert not first.woken

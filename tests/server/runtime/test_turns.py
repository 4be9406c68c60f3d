"""Long requests share the loop: one slice each, in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from server.runtime.turns import SLICE_SECONDS, Pace, Turns, in_slices

T = TypeVar("T")


class Clock:
    """A fake clock that moves when work is done."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def work(
    name: str, elements: int, turns: Turns, clock: Clock, did: Callable[[str], None]
) -> None:
    pace = Pace(turns, clock=clock)
    async for _ in pace.paced(range(elements)):
        clock.now_s += SLICE_SECONDS
        did(name)


async def test_a_request_that_ends_within_its_slice_does_not_wait() -> None:
    did: list[str] = []

    coroutine = work("a", 1, Turns(), Clock(), did.append)
    with pytest.raises(StopIteration):  # it ended without yielding to the loop
        coroutine.send(None)

    assert did == ["a"]


async def test_long_requests_take_turns_and_a_new_one_goes_before_them() -> None:
    turns, clock, did = Turns(), Clock(), list[str]()
    long = [asyncio.create_task(work(name, 4, turns, clock, did.append)) for name in "ab"]
    for _ in range(5):
        await asyncio.sleep(0)
    before = len(did)
    await work("new", 1, turns, clock, did.append)
    after_new = did[before:]
    await asyncio.gather(*long)

    assert after_new == ["new"]
    order = "".join(name for name in did if name != "new")
    assert all(abs(order[:n].count("a") - order[:n].count("b")) <= 2 for n in range(9))
    assert len(order) == 8


async def test_a_turn_of_the_loop_holds_one_slice_however_many_requests_are_long() -> None:
    turns, clock, did = Turns(), Clock(), list[str]()
    long = [asyncio.create_task(work(str(n), 5, turns, clock, did.append)) for n in range(20)]
    await asyncio.sleep(0)
    most = 0
    while not all(task.done() for task in long):
        before = len(did)
        await asyncio.sleep(0)
        most = max(most, len(did) - before)

    assert most == 1
    assert len(did) == 100


async def test_one_that_had_only_its_first_slice_does_not_wait_behind_all_long_ones() -> None:
    turns, clock, did = Turns(), Clock(), list[str]()
    long = [asyncio.create_task(work(str(n), 50, turns, clock, did.append)) for n in range(20)]
    for _ in range(45):
        await asyncio.sleep(0)  # each has had a turn or two
    before = len(did)
    await work("held up", 2, turns, clock, did.append)

    assert did[before:].index("held up") == 0
    assert len(did) - before <= 4
    for task in long:
        task.cancel()


async def test_new_requests_without_end_do_not_starve_a_long_one() -> None:
    turns, clock, did = Turns(), Clock(), list[str]()
    long = asyncio.create_task(work("long", 10, turns, clock, did.append))
    while not long.done():
        for _ in range(3):
            asyncio.create_task(work("new", 2, turns, clock, did.append))  # noqa: RUF006
        await asyncio.sleep(0)
        assert len(did) < 200

    assert did.count("long") == 10


async def test_one_that_gave_up_holds_nobody_up() -> None:
    turns, clock, did = Turns(), Clock(), list[str]()
    gone, stays = (asyncio.create_task(work(n, 3, turns, clock, did.append)) for n in "ab")
    await asyncio.sleep(0)
    gone.cancel()
    await stays

    assert did.count("b") == 3


async def test_a_wait_for_something_else_ends_the_slice_and_a_new_one_may_begin_at_once() -> None:
    clock = Clock()
    pace = Pace(Turns(), clock=clock)
    clock.now_s += SLICE_SECONDS
    assert pace.is_over

    pace.begin()

    assert not pace.is_over


@pytest.mark.parametrize(
    "collection", [list(range(100)), set(range(100)), dict.fromkeys(range(100))]
)
async def test_a_large_collection_is_emptied_in_slices(
    collection: list[int] | set[int] | dict[int, None],
) -> None:
    turns, clock = Turns(), Clock()
    pace = Pace(turns, clock=clock)
    clock.now_s += SLICE_SECONDS
    emptying = asyncio.create_task(pace.empty(collection))
    await asyncio.sleep(0)
    assert len(collection) == 100  # the slice had ended before

    await emptying

    assert not collection


async def test_a_request_has_a_new_slice_after_each_wait() -> None:
    clock, waits = Clock(), [asyncio.get_running_loop().create_future() for _ in range(2)]
    pace = Pace(Turns(), clock=clock)
    found: list[object] = []

    async def request() -> str:
        for wait in waits:
            try:
                found.append(await wait)
            except ValueError as error:
                found.append(error)
            found.append(pace.is_over)
        clock.now_s += SLICE_SECONDS
        found.append(pace.is_over)
        return "answer"

    running = asyncio.ensure_future(_await(in_slices(request(), pace)))
    await asyncio.sleep(0)
    clock.now_s += 10
    waits[0].set_result("synced")
    await asyncio.sleep(0)
    clock.now_s += 10
    lost = ValueError("lost")
    waits[1].set_exception(lost)

    assert await running == "answer"
    assert found == ["synced", False, lost, False, True]


async def test_a_cancelled_wait_reaches_the_request() -> None:
    ended: list[str] = []

    async def request() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    running = asyncio.ensure_future(_await(in_slices(request(), Pace(Turns()))))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert ended == ["cancelled"]


async def _await(work: Awaitable[T]) -> T:
    return await work


async def test_receives_are_counted_by_turn() -> None:
    turns, loop = Turns(), asyncio.get_running_loop()
    numbers = [turns.received(loop) for _ in range(3)]
    assert turns.receives_before == 0, "the turn is not over"
    await asyncio.sleep(0)
    assert turns.receives_before == 3

    for _ in range(3):
        await asyncio.sleep(0)
    assert turns.receives_before == 3, "a turn without receives counts nothing"

    numbers.append(turns.received(loop))
    await asyncio.sleep(0)
    assert turns.receives_before == 1
    assert len(set(numbers[:3])) == 1
    assert numbers[3] != numbers[0]

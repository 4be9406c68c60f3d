"""Long requests share the loop: one slice a turn, in the order in which they asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from server.turns import SLICE_SECONDS, Pace, Turns


class Clock:
    """Time that moves when work is done."""

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
    with pytest.raises(StopIteration):  # it ended without giving up the loop
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
    assert [name for name in did if name != "new"] == ["a", "b"] * 4


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
    assert len(collection) == 100  # the slice was over before

    await emptying

    assert not collection

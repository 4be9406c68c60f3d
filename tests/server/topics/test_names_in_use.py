"""Operations on the same topic take turns; operations on other topics do not wait."""

from __future__ import annotations

import asyncio

import pytest

from server.topics.names_in_use import NamesInUse


async def test_operations_on_one_name_take_turns_and_others_go_on() -> None:
    in_use, may_end = NamesInUse(), asyncio.Event()
    order: list[str] = []

    async def operation(what: str, *names: str) -> None:
        async with in_use.used(names):
            order.append(f"{what} begins")
            if what == "slow":
                await may_end.wait()
            order.append(f"{what} ends")

    slow = asyncio.create_task(operation("slow", "a", "b"))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(operation("waiting", "b", "c"))
    await operation("other", "c", "d")
    assert order == ["slow begins", "other begins", "other ends"]
    may_end.set()
    await asyncio.gather(slow, waiting)
    assert order[3:] == ["slow ends", "waiting begins", "waiting ends"]


async def test_names_that_collide_are_one() -> None:
    in_use = NamesInUse()
    async with in_use.used(["a.b"]):
        with pytest.raises(TimeoutError):
            async with in_use.used(["a_b"], until_s=asyncio.get_running_loop().time() + 0.01):
                pass


async def test_a_wait_ends_at_its_time_and_uses_nothing() -> None:
    in_use, now = NamesInUse(), asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with in_use.used(["free"], until_s=now):
            pass
    async with in_use.used(["taken"]):
        with pytest.raises(TimeoutError):
            async with in_use.used(["taken", "free"], until_s=now + 0.01):
                pass
        async with in_use.used(["free"]):
            pass


async def test_a_name_is_free_again_after_a_failure() -> None:
    in_use = NamesInUse()
    with pytest.raises(ZeroDivisionError):
        async with in_use.used(["a"]):
            raise ZeroDivisionError
    async with in_use.used(["a"]):
        pass

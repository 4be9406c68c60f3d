"""Slots whose number changes while they are in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cleaner.pool.runner import Slots


class Runs:
    """Tasks that take one slot each, and keep it until `end`."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._ends: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.started: list[int] = []

    async def begin(self, count: int) -> None:
        for number in range(len(self._tasks), len(self._tasks) + count):
            self._ends.append(asyncio.Event())
            self._tasks.append(asyncio.create_task(self._run(number)))
        await turn()

    async def end(self, number: int) -> None:
        self._ends[number].set()
        await turn()

    async def cancel(self, number: int) -> None:
        self._tasks[number].cancel()
        await turn()

    async def end_all(self) -> None:
        for end in self._ends:
            end.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, number: int) -> None:
        async with self._slots:
            self.started.append(number)
            await self._ends[number].wait()


async def turn() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def runs_of(slots: Slots) -> AsyncIterator[Runs]:
    runs = Runs(slots)
    yield runs
    await runs.end_all()


async def test_so_many_run_at_once_in_the_order_of_their_coming() -> None:
    async with runs_of(Slots(2)) as runs:
        await runs.begin(4)
        assert runs.started == [0, 1]
        await runs.end(1)
        assert runs.started == [0, 1, 2]


async def test_more_slots_are_given_at_once() -> None:
    slots = Slots(1)
    async with runs_of(slots) as runs:
        await runs.begin(4)
        slots.resize(3)
        await turn()
        assert runs.started == [0, 1, 2]


async def test_fewer_slots_leave_those_who_run_alone_and_let_no_other_begin() -> None:
    slots = Slots(3)
    async with runs_of(slots) as runs:
        await runs.begin(4)
        slots.resize(1)
        await runs.end(0)
        await runs.end(1)
        assert runs.started == [0, 1, 2]
        await runs.end(2)
        assert runs.started == [0, 1, 2, 3]


async def test_fewer_slots_count_where_none_is_taken() -> None:
    slots = Slots(3)
    slots.resize(1)
    async with runs_of(slots) as runs:
        await runs.begin(2)
        assert runs.started == [0]


async def test_who_no_longer_waits_takes_no_slot() -> None:
    async with runs_of(Slots(1)) as runs:
        await runs.begin(3)
        await runs.cancel(1)
        await runs.end(0)
        assert runs.started == [0, 2]


async def test_a_slot_that_was_given_to_a_cancelled_task_goes_to_the_next() -> None:
    async with runs_of(Slots(1)) as runs:
        await runs.begin(3)
        # The slot is assigned, and the task is cancelled before it runs.
        runs._ends[0].set()
        await asyncio.sleep(0)
        runs._tasks[1].cancel()
        await turn()
        assert runs.started == [0, 2]

"""Bounds on the resources of peers: one may exceed each bound, and no peer waits forever."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from server.net.limits import AnswerMemory, DecodedMemory, RequestMemory


@dataclass(eq=False)
class FakeReader:
    """A connection that the broker reads from while the bound allows it."""

    memory: RequestMemory
    held: int = 0
    is_reading: bool = True

    def resume_reading(self) -> None:
        self.is_reading = True

    def receive(self, size: int) -> None:
        assert self.is_reading
        self.memory.hold(size)
        self.held += size
        if not self.memory.may_read(self):
            self.is_reading = False
            self.memory.wait(self)

    def answer(self) -> None:
        size, self.held = self.held, 0
        self.memory.give_back(size)
        self.memory.forget(self)


def test_beyond_the_bound_one_reads_on_alone_and_the_others_in_their_order() -> None:
    memory = RequestMemory(bytes_max=100)
    first, second, third = (FakeReader(memory) for _ in range(3))
    for reader in (first, second, third):
        reader.receive(60)

    assert [each.is_reading for each in (first, second, third)] == [True, True, False]
    second.receive(500)
    assert second.is_reading
    second.answer()

    assert third.is_reading


def test_whatever_arrives_is_answered_and_the_bound_exceeded_by_one_at_a_time() -> None:
    """Readers of random requests; every reader that may read makes progress, until all are done."""
    for seed in range(200):
        rng = random.Random(seed)
        memory = RequestMemory(bytes_max=1000)
        left = {FakeReader(memory): rng.randint(1, 3000) for _ in range(rng.randint(1, 12))}
        # Each may receive once more before it notices that memory is short.
        receives = 400 * len(left)
        while left:
            reader = rng.choice([each for each in left if each.is_reading])
            step = min(rng.randint(1, 400), left[reader])
            reader.receive(step)
            left[reader] -= step
            if not left[reader]:
                del left[reader]
                reader.answer()
            beyond = memory.held_bytes - 1000
            exempt = memory.exempt
            alone = exempt.held if isinstance(exempt, FakeReader) else 0
            assert beyond <= alone + receives
        assert memory.held_bytes == 0
        assert not memory.is_short


async def test_an_answer_grows_beyond_the_bound_alone_and_the_next_one_waits() -> None:
    memory = AnswerMemory(bytes_max=100)
    first, second = object(), object()
    await memory.grow(first, 90)
    await memory.grow(second, 90)  # the one that exceeds the bound
    waiting = asyncio.ensure_future(memory.grow(first, 10))
    await asyncio.sleep(0)
    assert not waiting.done()
    await memory.grow(second, 500)
    memory.complete(second, 590)

    await waiting
    assert memory.held_bytes == 100


async def test_answers_that_were_sent_make_room() -> None:
    memory = AnswerMemory(bytes_max=100)
    memory.hold(150)
    exceeds, waits = object(), object()
    await memory.grow(exceeds, 1)
    waiting = asyncio.ensure_future(memory.grow(waits, 1))
    await asyncio.sleep(0)
    assert memory.is_short
    memory.give_back(150)

    await waiting
    assert not memory.is_short


@dataclass
class Request:
    """A request that holds memory for its decoded form until the test ends it."""

    memory: DecodedMemory
    size: int
    has_begun: bool = False
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with self.memory.held(self.size):
            self.has_begun = True
            await self.may_end.wait()


async def test_large_requests_run_in_order_within_the_bound_and_one_above_it_alone() -> None:
    memory = DecodedMemory(bytes_max=100)
    small, other, huge, last = (Request(memory, size) for size in (60, 40, 1000, 10))
    tasks = [asyncio.ensure_future(each.run()) for each in (small, other, huge, last)]
    await asyncio.sleep(0)
    assert [each.has_begun for each in (small, other, huge, last)] == [True, True, False, False]
    for each in (small, other):
        each.may_end.set()
    await asyncio.gather(*tasks[:2])
    await asyncio.sleep(0)
    assert huge.has_begun
    assert not last.has_begun
    huge.may_end.set()
    last.may_end.set()
    await asyncio.gather(*tasks)

    assert memory.held_bytes == 0


async def test_a_request_that_gave_up_waiting_holds_nothing() -> None:
    memory = DecodedMemory(bytes_max=100)
    runs, gives_up = Request(memory, 100), Request(memory, 50)
    tasks = [asyncio.ensure_future(each.run()) for each in (runs, gives_up)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    runs.may_end.set()
    await tasks[0]

    assert memory.held_bytes == 0
    async with memory.held(100):
        pass


async def test_requests_that_fit_do_not_wait_behind_a_larger_one_that_gave_up() -> None:
    memory = DecodedMemory(bytes_max=100)
    runs, huge, small = (Request(memory, size) for size in (60, 1000, 10))
    tasks = [asyncio.ensure_future(each.run()) for each in (runs, huge, small)]
    await asyncio.sleep(0)
    assert not small.has_begun
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    await asyncio.sleep(0)
    assert small.has_begun

    for each in (runs, small):
        each.may_end.set()
    await asyncio.gather(tasks[0], tasks[2])
    assert memory.held_bytes == 0


async def test_a_request_cancelled_just_as_it_is_admitted_holds_nothing() -> None:
    memory = DecodedMemory(bytes_max=100)
    admitted = Request(memory, 50)
    async with memory.held(100):
        task = asyncio.ensure_future(admitted.run())
        await asyncio.sleep(0)
    assert memory.held_bytes == 50
    task.cancel()
    await asyncio.wait([task])

    assert not admitted.has_begun
    assert memory.held_bytes == 0


def test_giving_back_more_than_is_held_is_a_mistake() -> None:
    requests, answers = RequestMemory(bytes_max=10), AnswerMemory(bytes_max=10)
    requests.hold(4)
    answers.hold(4)
    requests.give_back(4)
    answers.give_back(4)

    with pytest.raises(AssertionError):
        requests.give_back(1)
    with pytest.raises(AssertionError):
        answers.give_back(1)

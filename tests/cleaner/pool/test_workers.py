"""The workers of the pool: when they look for work, and when they sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from cleaner.pool.runner import Runner
from cleaner.pool.workers import Workers
from tests.cleaner.pool_house import HOUR_MS, SETTINGS, Recorder
from tests.harness.topics_world import FixedClock

SLEEPY = replace(SETTINGS, backoff_ms=HOUR_MS)
NEVER = float("inf")


class Bench:
    """One worker, and what its looks return or raise, in order; then they return `NEVER`."""

    def __init__(self, *outcomes: float | BaseException | None) -> None:
        self._outcomes = list(outcomes)
        self.looks = 0
        self.clock = FixedClock()
        self.probe = Recorder()
        self.runner = Runner(SLEEPY, clock=self.clock, probe=self.probe)
        self.workers = Workers(self._look, self.runner, clock=self.clock, probe=self.probe)

    async def _look(self) -> float | None:
        self.looks += 1
        outcome = self._outcomes.pop(0) if self._outcomes else NEVER
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@asynccontextmanager
async def working(bench: Bench) -> AsyncIterator[Bench]:
    """Start the worker, and let it run as far as it can without a clock."""
    bench.workers.start()
    await turns()
    try:
        yield bench
    finally:
        bench.runner.request_stop()
        await bench.workers.until_ended()
        await bench.runner.drain()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_worker_that_has_cleaned_looks_again_at_once() -> None:
    async with working(Bench(None, None)) as bench:
        assert bench.looks == 3


async def test_a_worker_looks_again_at_the_moment_that_its_look_named() -> None:
    async with working(Bench(FixedClock().monotonic())) as bench:
        assert bench.looks == 2


async def test_a_worker_that_sleeps_looks_again_when_it_is_woken() -> None:
    async with working(Bench()) as bench:
        assert bench.looks == 1
        bench.workers.wake()
        await turns()
        assert bench.looks == 2


async def test_a_worker_that_fails_again_and_again_sleeps_in_between() -> None:
    now, fault = FixedClock().monotonic(), RuntimeError("a bug")

    async with working(Bench(now, fault, fault)) as bench:
        assert bench.looks == 2
        bench.workers.wake()
        await turns()
        assert bench.probe.events == ["worker failed RuntimeError('a bug')"] * 2
        assert bench.workers.dead == 0


async def test_a_worker_beyond_the_number_of_threads_ends_and_is_not_dead() -> None:
    bench = Bench()
    bench.runner.configure(replace(SLEEPY, threads=2))
    async with working(bench):
        assert bench.looks == 2
        bench.runner.configure(SLEEPY)
        bench.workers.wake()
        await turns()
        assert (bench.looks, bench.workers.dead) == (3, 0)


class Ended(BaseException):
    """What no worker survives."""


async def test_a_worker_that_ends_is_replaced_and_counted() -> None:
    async with working(Bench(FixedClock().monotonic(), Ended("a bug"))) as bench:
        await turns()

        assert bench.looks == 3
        assert bench.workers.dead == 0
        assert bench.probe.events == ["worker failed Ended('a bug')"]

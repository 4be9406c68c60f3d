"""Spark's work in a thread ends as soon as nobody waits for it; without Spark."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pipeline.spark.thread import SparkThread, Stopped


class SlowSession:
    """A session whose only job runs until it is cancelled."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.began = threading.Event()
        self._cancelled = threading.Event()

    def cancelAllJobs(self) -> None:
        self._cancelled.set()

    def job(self, _: object) -> str:
        self.began.set()
        self._cancelled.wait()
        raise RuntimeError("Job 0 cancelled")


def given(session: object) -> AbstractContextManager[Any]:
    return nullcontext(session)


async def test_what_the_work_returns_is_returned() -> None:
    assert await SparkThread(lambda: given(7)).run(str, asyncio.Event()) == "7"


async def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await SparkThread(lambda: given("x")).run(int, asyncio.Event())


async def test_jobs_are_cancelled_when_the_work_is_to_stop() -> None:
    session, stop = SlowSession(), asyncio.Event()
    work = asyncio.create_task(SparkThread(lambda: given(session)).run(session.job, stop))
    await asyncio.to_thread(session.began.wait)

    stop.set()

    with pytest.raises(Stopped):
        await work


async def test_jobs_are_cancelled_when_nobody_waits_any_more() -> None:
    session = SlowSession()
    work = asyncio.create_task(
        SparkThread(lambda: given(session)).run(session.job, asyncio.Event())
    )
    await asyncio.to_thread(session.began.wait)

    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_step_after_the_stop_does_not_begin() -> None:
    stop = asyncio.Event()
    stop.set()
    thread = SparkThread(lambda: given(SlowSession()))

    def work(session: Any) -> None:
        session.began.set()
        while True:
            thread.check()

    with pytest.raises(Stopped):
        await thread.run(work, stop)

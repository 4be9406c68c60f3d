"""The pools of threads, each with its purpose and its bound."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

from server.runtime.executors import Executor, Executors

CHECKOUT = Path(__file__).resolve().parents[3]


async def test_work_runs_in_a_thread_that_has_the_name_of_its_purpose() -> None:
    executor = Executor("lookups", threads=1)

    name = await executor.run(lambda: threading.current_thread().name)

    executor.close()
    assert name.startswith("lookups")


async def test_what_the_work_raises_is_raised_where_it_is_awaited() -> None:
    executor = Executor("lookups", threads=1)

    with pytest.raises(ValueError, match="no"):
        await executor.run(int, "no")

    executor.close()


async def test_a_pool_runs_no_more_than_its_threads_at_once() -> None:
    executor = Executor("lookups", threads=2)
    both, may_end = threading.Barrier(3), threading.Event()
    running: list[int] = []

    def work() -> None:
        running.append(1)
        if len(running) <= 2:
            both.wait()
        may_end.wait()

    jobs = [asyncio.ensure_future(executor.run(work)) for _ in range(4)]
    await asyncio.get_running_loop().run_in_executor(None, both.wait)
    at_once = len(running)
    may_end.set()
    await asyncio.gather(*jobs)

    executor.close()
    assert at_once == 2
    assert len(running) == 4


async def test_a_pool_that_is_full_holds_up_no_other() -> None:
    executors, may_end = Executors(), threading.Event()
    held = [asyncio.ensure_future(executors.administration.run(may_end.wait)) for _ in range(8)]

    assert await executors.lookups.run(lambda: "found") == "found"

    may_end.set()
    await asyncio.gather(*held)
    executors.close()


def test_the_page_about_the_loop_names_every_pool() -> None:
    page = (CHECKOUT / "docs" / "design" / "loop.md").read_text("utf-8")
    pools = {
        name
        for path in (CHECKOUT / "server").rglob("*.py")
        for name in re.findall(r'\bExecutor\(\s*"(\w+)"', path.read_text("utf-8"))
    }
    assert set(Executors.__slots__) <= pools
    assert {name for name in pools if f"`{name}`" not in page} == set()

"""The loop watch measures, names, logs and exports what held the loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest, MetadataResponse
from server.runtime import loop_watch
from server.runtime.loop_watch import LoopWatch
from server.topics.topics import Topics
from tests.harness.served_broker import serving_broker
from tests.harness.watched_loop import HeldLoop

HELD_SECONDS = 0.3
PATIENCE_SECONDS = 300.0


def compute(seconds: float) -> None:
    """Keep the processor busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - a beat sets no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def watch() -> AsyncIterator[LoopWatch]:
    one = LoopWatch()
    yield one
    one.stop()


async def test_a_stall_is_measured_on_the_wall_and_on_the_processor(watch: LoopWatch) -> None:
    await asyncio.sleep(loop_watch.BEAT_SECONDS)
    time.sleep(HELD_SECONDS)  # noqa: ASYNC251 - that is what is watched for
    await until(lambda: watch.facts().longest_stall.seconds)

    waited = watch.facts().longest_stall
    assert waited.seconds >= HELD_SECONDS - loop_watch.BEAT_SECONDS
    assert waited.cpu_seconds < HELD_SECONDS / 2

    compute(2 * HELD_SECONDS)
    await until(lambda: watch.facts().longest_stall.seconds > waited.seconds)

    assert watch.facts().longest_stall.cpu_seconds >= HELD_SECONDS


async def test_a_long_stall_is_logged_and_counted_and_a_short_one_is_not(
    watch: LoopWatch, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.sleep(loop_watch.BEAT_SECONDS)
    time.sleep(HELD_SECONDS)  # noqa: ASYNC251
    await until(lambda: watch.facts().stalls_by_api)

    (record,) = [each for each in caplog.records if each.name == "server.runtime.loop_watch"]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("the event loop was held for ")
    assert watch.facts().stalls_by_api == {"other": 1}


async def test_the_longest_stall_is_forgotten_after_two_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_watch, "WINDOW_SECONDS", 0.1)
    watch = LoopWatch()
    await asyncio.sleep(loop_watch.BEAT_SECONDS)
    time.sleep(HELD_SECONDS)  # noqa: ASYNC251
    await until(lambda: watch.facts().longest_stall.seconds >= HELD_SECONDS / 2)

    await until(lambda: watch.facts().longest_stall.seconds < HELD_SECONDS / 2)

    watch.stop()


async def test_the_idle_share_is_what_the_loop_s_thread_left_of_the_processor(
    watch: LoopWatch,
) -> None:
    compute(HELD_SECONDS)
    await until(lambda: watch.facts().longest_stall.seconds)
    busy = watch.facts()

    await until(lambda: watch.facts().idle_share > busy.idle_share)

    assert 0.0 <= busy.idle_share < 0.9
    assert busy.busy_seconds >= HELD_SECONDS


async def test_the_api_that_held_the_loop_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    all_topics = Topics.all

    def slow(topics: Topics) -> object:
        compute(HELD_SECONDS)
        return all_topics(topics)

    async def ask() -> None:
        async with serving_broker(tmp_path) as served:
            monkeypatch.setattr(Topics, "all", slow)
            await served.call(MetadataRequest(topics=None), 9, MetadataResponse)
            await until(lambda: served.broker.loop_facts.stalls_by_api)
            counts.update(served.broker.loop_facts.stalls_by_api)

    counts: dict[str, int] = {}
    with pytest.raises(HeldLoop):
        await ask()

    assert counts == {"Metadata": 1}
    said = [
        each.getMessage() for each in caplog.records if each.name == "server.runtime.loop_watch"
    ]
    assert "by Metadata, at server.views.readable_topics:" in said[0]

"""The event loop of the tests notices a broker that holds it."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

from protocol.messages.metadata import MetadataRequest, MetadataResponse
from server.topics.topics import Topics
from storage.log.new_logs import NewLogs
from tests.harness.served_broker import serving_broker
from tests.harness.stolen_time import REFRESH_SECONDS, StolenTime
from tests.harness.watched_loop import HeldLoop

METADATA = MetadataRequest(topics=None)


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_handler_that_holds_the_loop_fails_the_test_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_topics = Topics.all

    def slow(topics: Topics) -> object:
        # More than another guest of the host may take meanwhile.
        compute(0.3)
        return all_topics(topics)

    async def ask() -> None:
        async with serving_broker(tmp_path) as served:
            monkeypatch.setattr(Topics, "all", slow)
            await served.call(METADATA, 9, MetadataResponse)
            monkeypatch.undo()

    with pytest.raises(HeldLoop, match=r"ms of CPU: Connection\.buffer_updated"):
        await ask()


async def test_what_other_guests_of_the_host_have_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_topics = Topics.all

    def interrupted(topics: Topics) -> object:
        compute(0.1)
        return all_topics(topics)

    async with serving_broker(tmp_path) as served:
        monkeypatch.setattr(StolenTime, "seconds", lambda _: 0.1)
        monkeypatch.setattr(Topics, "all", interrupted)
        await served.call(METADATA, 9, MetadataResponse)
        monkeypatch.undo()


def test_stolen_time_is_read_from_the_kernel_and_counts_from_the_beginning_of_a_call(
    tmp_path: Path,
) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 100 9 10\ncpu0 1 1 1 1 1 1 1 50 1 1\n")
    stolen = StolenTime(stat)
    assert stolen.seconds() == 0.0
    stat.write_text("cpu  1 2 3 4 5 6 7 110 9 10\n")
    assert stolen.seconds() == pytest.approx(10 / os.sysconf("SC_CLK_TCK"))
    time.sleep(REFRESH_SECONDS)
    stolen.call_begins()
    assert stolen.seconds() == 0.0
    stat.unlink()
    assert StolenTime(stat).seconds() == 0.0


async def test_what_the_test_itself_computes_and_garbage_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_topics = Topics.all

    def littering(topics: Topics) -> object:
        gc.collect()
        return all_topics(topics)

    async with serving_broker(tmp_path) as served:
        compute(0.06)
        monkeypatch.setattr(Topics, "all", littering)
        await served.call(METADATA, 9, MetadataResponse)
        monkeypatch.undo()


async def test_a_log_whose_files_are_created_on_the_loop_fails_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing else creates the files before the first append.
    monkeypatch.setattr(NewLogs, "make_files", lambda *_: None)

    async def append() -> None:
        async with serving_broker(tmp_path) as served:
            await served.broker.topics.create("t")
            served.log("t").new_files.make()

    with pytest.raises(AssertionError, match="the loop created the files of 1 log"):
        await append()

"""What a terminal shows of a job; and that it is gone before the job says what came of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pipeline.spark.session
from pipeline.spark.job_progress import shown_on_terminal, stream_text, tasks_text
from pipeline.spark.session_options import SessionOptions
from tests.harness.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def source(description: str, end: str, latest: str) -> Any:
    return SimpleNamespace(description=description, endOffset=end, latestOffset=latest)


def progress(*sources: Any, rate: float = 1234.5) -> Any:
    return SimpleNamespace(batchId=7, processedRowsPerSecond=rate, sources=sources)


def test_a_stream_says_its_batch_its_rate_and_how_far_it_is_behind() -> None:
    kafka = source("KafkaV2[Subscribe[t]]", '{"t":{"0":5,"1":1}}', '{"t":{"0":12350,"1":1}}')

    assert (
        stream_text(progress(kafka))
        == "Batch 7, 1,234 records/s, 12,345 offsets behind, about 10.0 s left"
    )


def test_a_stream_without_a_rate_gives_no_time() -> None:
    kafka = source("KafkaV2[Subscribe[t]]", '{"t":{"0":5}}', '{"t":{"0":6}}')

    assert stream_text(progress(kafka, rate=0)) == "Batch 7, 0 records/s, 1 offset behind"


def test_other_sources_are_not_behind() -> None:
    assert stream_text(progress(source("Rate", "5", "9"))).endswith(" 0 offsets behind")


@pytest.mark.parametrize(
    ("done", "total", "seconds_left", "text"),
    [
        (0, 1, None, "0 of 1 task"),
        (0, 6, 7.0, "0 of 6 tasks"),
        (4, 6, None, "4 of 6 tasks"),
        (4, 6, 7.0, "4 of 6 tasks, about 7.0 s left"),
        (6, 6, 0.0, "6 of 6 tasks"),
    ],
)
def test_tasks_say_how_long_the_others_may_take_once_that_is_known(
    done: int, total: int, seconds_left: float | None, text: str
) -> None:
    assert tasks_text(done, total, seconds_left) == text


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_on_terminal() as shown:
        assert shown is None

    assert capsys.readouterr() == ("", "")


@contextmanager
def shown_stderr() -> Iterator[Terminal]:
    """Within, standard error is this terminal."""
    terminal = Terminal()
    with os.fdopen(os.dup(terminal.descriptor), "w") as stderr, redirect_stderr(stderr):
        yield terminal


class IdleSession:
    """A session that runs nothing, and that has no status once it is stopped."""

    def __init__(self) -> None:
        self.streams = SimpleNamespace(active=[])
        self.was_looked_at = threading.Event()
        self.watchers_at_stop: list[str] = []
        self._is_stopped = False

    @property
    def sparkContext(self) -> Any:
        assert not self._is_stopped, "'NoneType' object has no attribute 'statusTracker'"
        self.was_looked_at.set()
        return SimpleNamespace(
            statusTracker=lambda: SimpleNamespace(getActiveStageIds=tuple),
        )

    def stop(self) -> None:
        self._is_stopped = True
        self.watchers_at_stop = [
            thread.name for thread in threading.enumerate() if thread.name == "progress"
        ]


def test_nobody_looks_at_a_session_any_more_when_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = IdleSession()
    monkeypatch.setattr(pipeline.spark.session, "start_session", lambda *_, **__: session)

    with shown_stderr() as shown, pipeline.spark.session.job_session("idle", SessionOptions()):
        assert session.was_looked_at.wait(30)
        shown.wait_for("Working")

    assert session.watchers_at_stop == []
    assert not {"None", "task"} & set(shown.written().split())


@pytest.mark.spark
def test_a_job_shows_its_tasks_on_a_terminal(session: SparkSession, tmp_path: Path) -> None:
    numbers = session.sparkContext.parallelize(range(6), 6)
    held = numbers.map(partial(wait_for_file, str(tmp_path / "go on")))
    with shown_stderr() as shown, shown_on_terminal() as progress, ThreadPoolExecutor(1) as pool:
        assert progress is not None
        progress.follow(session)
        counting = pool.submit(held.count)
        try:
            shown.wait_for("0 of 6 tasks")
        finally:
            (tmp_path / "go on").touch()
        assert counting.result() == 6

    written = shown.written()
    assert "Starting Spark" in written
    assert "of None" not in written


def wait_for_file(path: str, number: int) -> int:
    """A task that waits until this file exists."""
    while not Path(path).exists():
        time.sleep(0.02)
    return number

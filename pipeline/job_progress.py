"""How far a job is, on a terminal: Spark's stages, and where its streams are.

A thread of its own reads Spark's status beside the job. Without a terminal on standard error nothing
is shown and no thread runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from cleaner.text import count_text, duration_text
from pipeline.lag import parse_offsets
from server.command_output import progress_bars

LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages that run now, summed."""

    tasks_done: int
    tasks: int
    """0: no stage runs."""
    records_read: int
    """By tasks that are done and, as of their last heartbeat, by those that run."""


class TasksColumn(ProgressColumn):
    """How many tasks of the running stages are done, and how long the others may take."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text()
        return Text(tasks_text(int(task.completed), int(task.total), task.time_remaining))


class JobProgress:
    """One line that says what Spark does now, from `follow` until `end`."""

    __slots__ = ("_ended", "_progress", "_task", "_watcher")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("Starting Spark", total=None)
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def follow(self, session: SparkSession) -> None:
        """Show what this session does from now on."""
        self._watcher = threading.Thread(
            target=self._watch, args=(session,), name="progress", daemon=True
        )
        self._watcher.start()

    def end(self) -> None:
        """Wait for the last look at the session and erase the line.

        To be called before the session is stopped: a stopped one has no status to read. May be
        called again.
        """
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()
        self._progress.stop()

    def _watch(self, session: SparkSession) -> None:
        # If the JVM is gone, the job itself fails and says so.
        with contextlib.suppress(Py4JError, OSError):
            while not self._ended.wait(LOOK_SECONDS):
                self._show(stages_of(session), streams_of(session))

    def _show(self, stages: Stages, streams: list[str]) -> None:
        text = " · ".join(streams) or working_text(stages.records_read)
        self._progress.update(self._task, description=text)
        # Between two stages the bar stays as it is.
        if stages.tasks:
            self._progress.update(self._task, completed=stages.tasks_done, total=stages.tasks)


@contextlib.contextmanager
def shown_on_terminal() -> Iterator[JobProgress | None]:
    """A line on standard error while a job runs; None if standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TasksColumn(),
        TimeElapsedColumn(),
    )
    with progress_bars(*columns) as progress:
        job = JobProgress(progress)
        try:
            yield job
        finally:
            job.end()


def tasks_text(done: int, total: int, seconds_left: float | None) -> str:
    """Tasks of the running stages; the time left once the pace of this stage is known (pure)."""
    text = f"{done} of {count_text(total, 'task')}"
    if done and done < total and seconds_left is not None:
        text += f", about {duration_text(seconds_left)} left"
    return text


def working_text(records_read: int) -> str:
    """What a job without streams does (pure)."""
    return f"Working, {count_text(records_read, 'record')} read" if records_read else "Working"


def stages_of(session: SparkSession) -> Stages:
    """The stages that run now."""
    # PySpark's own tracker counts tasks only: a stage of one task would never get any further.
    found = session._jsc.sc().statusStore().activeStages()
    stages = [found.apply(index) for index in range(found.size())]
    return Stages(
        tasks_done=sum(stage.numCompleteTasks() for stage in stages),
        tasks=sum(stage.numTasks() for stage in stages),
        records_read=sum(stage.inputRecords() for stage in stages),
    )


def streams_of(session: SparkSession) -> list[str]:
    """A text for each running query that has completed a micro-batch."""
    progress = [query.lastProgress for query in session.streams.active]
    return [stream_text(said) for said in progress if said is not None]


def stream_text(progress: Any) -> str:
    """Where a query is, by what Spark reports after each micro-batch (pure)."""
    behind = sum(offsets_behind(source) for source in progress.sources)
    rate = progress.processedRowsPerSecond or 0
    left = f", about {duration_text(behind / rate)} left" if behind and rate else ""
    return f"Batch {progress.batchId}, {rate:,.0f} records/s, {behind:,} offsets behind{left}"


def offsets_behind(source: Any) -> int:
    """From the end of the last micro-batch to the ends of the partitions at that time."""
    if not source.description.startswith("Kafka"):
        return 0
    ends, latest = parse_offsets(source.endOffset), parse_offsets(source.latestOffset)
    return sum(offset - ends.get(part, 0) for part, offset in latest.items())

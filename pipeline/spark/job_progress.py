"""Shows a job's progress on a terminal: Spark's stages, and the positions of its streams.

A separate thread reads Spark's status beside the job. Without a terminal on standard error nothing
is shown and no thread runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
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

from cleaner.rules.text import count_text, duration_text
from cli.base.output import progress_bars
from pipeline.offsets.lag import parse_offsets

LOOK_SECONDS = 0.25


class TasksColumn(ProgressColumn):
    """The done tasks of the running stages, and the estimated time for the others."""

    def render(self, task: Task) -> Text:
        # A stream shows its own progress, because each micro-batch has its own stages.
        if task.total is None or task.fields["has_streams"]:
            return Text()
        return Text(tasks_text(int(task.completed), int(task.total), task.time_remaining))


class JobProgress:
    """One line that shows what Spark is doing, from `follow` until `end`."""

    __slots__ = ("_ended", "_progress", "_task", "_watcher")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("Starting Spark", total=None, has_streams=False)
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def follow(self, session: SparkSession) -> None:
        """Start to show this session's progress."""
        self._watcher = threading.Thread(
            target=self._watch, args=(session,), name="progress", daemon=True
        )
        self._watcher.start()

    def end(self) -> None:
        """Wait for the last read of the session's status and erase the line.

        Call it before stopping the session: a stopped session has no status. It may be called
        again.
        """
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()
        self._progress.stop()

    def _watch(self, session: SparkSession) -> None:
        # If the JVM is gone, the job itself fails and reports that.
        with contextlib.suppress(Py4JError, OSError):
            while not self._ended.wait(LOOK_SECONDS):
                self._show(*tasks_of(session), streams_of(session))

    def _show(self, done: int, total: int, streams: list[str]) -> None:
        text = " · ".join(streams) or "Working"
        self._progress.update(self._task, description=text, has_streams=bool(streams))
        # Between two stages the bar keeps its state.
        if total:
            self._progress.update(self._task, completed=done, total=total)


@contextlib.contextmanager
def shown_on_terminal() -> Iterator[JobProgress | None]:
    """Show a line on standard error while a job runs. Yields None if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
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
    """Returns the text about running tasks, with the time left once the stage's pace is known (pure)."""
    text = f"{done} of {count_text(total, 'task')}"
    if done and done < total and seconds_left is not None:
        text += f", about {duration_text(seconds_left)} left"
    return text


def tasks_of(session: SparkSession) -> tuple[int, int]:
    """Returns the done and all tasks of the running stages; (0, 0) between two stages."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def streams_of(session: SparkSession) -> list[str]:
    """Returns a text for each running query that has completed a micro-batch."""
    progress = [query.lastProgress for query in session.streams.active]
    return [stream_text(said) for said in progress if said is not None]


def stream_text(progress: Any) -> str:
    """Returns a query's position, from Spark's report after each micro-batch (pure)."""
    behind = sum(offsets_behind(source) for source in progress.sources)
    rate = progress.processedRowsPerSecond or 0
    left = f", about {duration_text(behind / rate)} left" if behind and rate else ""
    offsets = count_text(behind, "offset")
    return f"Batch {progress.batchId}, {rate:,.0f} records/s, {offsets} behind{left}"


def offsets_behind(source: Any) -> int:
    """Returns the offsets between the last micro-batch's end and the partitions' ends at that time."""
    if not source.description.startswith("Kafka"):
        return 0
    ends, latest = parse_offsets(source.endOffset), parse_offsets(source.latestOffset)
    return sum(offset - ends.get(part, 0) for part, offset in latest.items())

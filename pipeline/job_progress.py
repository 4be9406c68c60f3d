"""How far a job is, on a terminal: Spark's stages, and where its streams are.

Looks at Spark's status from a thread of its own, beside the job. Where standard error is no
terminal there is neither.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pipeline.lag import parse_offsets

LOOK_SECONDS = 0.25


class JobProgress:
    """One line that says what Spark does now; told of the session once there is one."""

    __slots__ = ("_ended", "_progress", "_task", "_watcher")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("Starting Spark", total=None)
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def follow(self, session: SparkSession) -> None:
        """From now on show what this session does."""
        self._watcher = threading.Thread(
            target=self._watch, args=(session,), name="progress", daemon=True
        )
        self._watcher.start()

    def end(self) -> None:
        """Look no more; returns once the last look is over."""
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()

    def _watch(self, session: SparkSession) -> None:
        # A JVM that is gone is the job's to tell.
        with contextlib.suppress(Py4JError, OSError):
            while not self._ended.wait(LOOK_SECONDS):
                done, total = tasks_of(session)
                text = " · ".join(streams_of(session)) or "Working"
                self._progress.update(
                    self._task, description=text, completed=done, total=total or None
                )


@contextlib.contextmanager
def shown_on_terminal() -> Iterator[JobProgress | None]:
    """A line on standard error while a job runs, None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total} tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        job = JobProgress(progress)
        try:
            yield job
        finally:
            job.end()


def tasks_of(session: SparkSession) -> tuple[int, int]:
    """Tasks that are done, and all, of the stages that run now."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def streams_of(session: SparkSession) -> list[str]:
    """A text for each running query that has been through a micro-batch."""
    progress = [query.lastProgress for query in session.streams.active]
    return [stream_text(said) for said in progress if said is not None]


def stream_text(progress: Any) -> str:
    """Where a query is, of what Spark tells after each micro-batch (pure)."""
    behind = sum(offsets_behind(source) for source in progress.sources)
    rate = progress.processedRowsPerSecond or 0
    return f"Batch {progress.batchId}, {rate:,.0f} records/s, {behind:,} offsets behind"


def offsets_behind(source: Any) -> int:
    """From where the last micro-batch ended to the ends of the partitions then."""
    if not source.description.startswith("Kafka"):
        return 0
    ends, latest = parse_offsets(source.endOffset), parse_offsets(source.latestOffset)
    return sum(offset - ends.get(part, 0) for part, offset in latest.items())

"""Cleans leased logs with Spark as the executor: index -> last -> group -> recopy. Start at `execute`.

    index    one task per segment: reads its key sidecar, or makes one for this pass
    section  one task per log with transactions: which were aborted, and where the pass ends
    last     Spark's shuffle: which entries a later one of their key supersedes (`superseded.py`)
    group    one task per log: which segments change, and which neighbours become one
    recopy   one task per group (per log with transactions): rewrites and verifies, into the lease's
             folder

All logs of a job go through a step together, so that few or many partitions fill all executors. A log
that fails, fails alone. If its outputs did not pass verification, one of its key sidecars may disagree
with its segment: then it goes through all steps once more, with sidecars made from the segments.

The job only changes the leases' folders; at the commit the broker (`cleaner/remote/commit.py`) decides
whether to accept a result, and swaps the segments.

The driver holds the plans, the results of tasks, and the marks: a bit for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TypeVar

import pyarrow as pa
from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cleaner.passes.mark import Marked
from cleaner.remote.execute import RemotePass, SegmentKeys, is_one_task, result_of
from cleaner.remote.plan import GroupResult, RemotePlan, RemoteResult, group_from_json
from pipeline.cleaning import tasks as cleaning_tasks
from pipeline.cleaning.tasks import Outcome, Section, Work, attempt
from pipeline.source.key_entries import SCHEMA, NumberedSegment, key_entries
from pipeline.source.superseded import map_in_arrow, marked
from protocol.wire.numbers import Offset

T = TypeVar("T")


@dataclass(slots=True)
class LogPass:
    """A leased log's state between the steps, on the driver."""

    number: int
    plan: RemotePlan
    keys: tuple[SegmentKeys, ...] = ()
    section: Section | None = None
    marked: Sequence[Marked] = ()
    groups: list[GroupResult] = field(default_factory=list)
    error: str | None = None
    """The reason why it failed."""
    doubts_sidecars: bool = False
    """Whether it failed because a key sidecar may disagree with its segment."""
    rebuilds: bool = False
    """Whether it ignores the sidecars that it finds."""
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def is_one_task(self) -> bool:
        """Whether one task rewrites all its groups in order, because transactions connect them."""
        return is_one_task(self.keys)

    @property
    def sidecars_built(self) -> int:
        """Number of segments that had to be read for their keys."""
        return sum(each.made_by is not None for each in self.keys)

    @property
    def end_offset(self) -> Offset:
        """The offset at which the pass ends."""
        return self.section.end_offset if self.section else self.plan.end_offset

    @property
    def result(self) -> RemoteResult:
        """Returns the result for the broker."""
        return result_of(self.plan, self.end_offset, self.groups, self.keys)

    def take(self, outcome: Outcome[T]) -> T | None:
        """Record a task's cost and failure. Returns its value."""
        self.bytes_read += outcome.bytes_read
        self.bytes_written += outcome.bytes_written
        self.error = self.error or outcome.error
        self.doubts_sidecars = self.doubts_sidecars or outcome.doubts_sidecars
        return outcome.value

    def start_over(self) -> None:
        """Forget all that the steps have found, and ignore the sidecars from now on."""
        self.keys, self.section, self.marked, self.groups = (), None, (), []
        self.error, self.doubts_sidecars, self.rebuilds = None, False, True

    def grouping(self) -> Work[tuple[slice, ...]]:
        """Returns the task that groups its segments; only for a log without transactions."""
        return partial(cleaning_tasks.groups, keys=self.keys, marked=self.marked)

    def recopy_of(self, group: slice) -> Work[tuple[str, ...]]:
        """Returns the task that rewrites a group, or all groups of a log with transactions."""
        return partial(
            cleaning_tasks.recopy,
            keys=self.keys[group],
            marked=self.marked[group],
            whole_log=self.is_one_task,
        )

    def numbered(self, first: int) -> list[NumberedSegment]:
        """Returns its segments, numbered within the job from `first` on."""
        return [
            NumberedSegment(
                log=self.number,
                number=first + each.number,
                row=each.row,
                start_offset=self.plan.start_offset,
                end_offset=self.end_offset,
                aborted=self.section.aborted if self.section else (),
            )
            for each in self.keys
        ]


def execute(
    session: SparkSession, plans: Sequence[RemotePlan], *, enter: Callable[[str], None]
) -> list[LogPass]:
    """Execute leased plans up to their results.

    Args:
        enter: called with the name of each step as it begins.

    Raises:
        PySparkException: a job of Spark's failed, or was cancelled.
    """
    passes = [LogPass(number, plan) for number, plan in enumerate(plans)]
    sent = session.sparkContext.broadcast(list(plans))
    _Job(session, sent, passes).run(enter)
    doubtful = [each for each in passes if each.doubts_sidecars]
    for each in doubtful:
        each.start_over()
    if doubtful:
        _Job(session, sent, doubtful).run(enter)
    return passes


class _Job:
    """The steps of one job over some logs."""

    __slots__ = ("_plans", "_session", "passes")

    def __init__(
        self, session: SparkSession, plans: Broadcast[list[RemotePlan]], passes: Sequence[LogPass]
    ) -> None:
        """`plans` are those of all logs, by the numbers of their passes."""
        self._session = session
        self._plans = plans
        self.passes = passes

    def run(self, enter: Callable[[str], None]) -> None:
        for name, step in (("index", self.index), ("last", self.mark), ("recopy", self.recopy)):
            enter(name)
            self._session.sparkContext.setJobDescription(f"kompakt: {name}")
            step()

    def index(self) -> None:
        tasks: list[tuple[LogPass, Work[SegmentKeys]]] = []
        for each in self.passes:
            count = each.take(attempt(each.plan, cleaning_tasks.segments_count)) or 0
            tasks += [
                (each, partial(cleaning_tasks.index, number=at, rebuild=each.rebuilds))
                for at in range(count)
            ]
        for each, keys in self._run(tasks):
            each.keys = (*each.keys, keys)
        undecided = [
            (each, partial(cleaning_tasks.section, keys=each.keys))
            for each in self._going()
            if each.is_one_task
        ]
        for each, section in self._run(undecided):
            each.section = section

    def mark(self) -> None:
        while going := self._going():
            try:
                self._mark(going)
            except PySparkException:
                # A log that was deleted or truncated meanwhile must not fail the others.
                for each in going:
                    each.take(attempt(each.plan, partial(cleaning_tasks.open_all, keys=each.keys)))
                if going == self._going():
                    raise
            else:
                return

    def _mark(self, going: Sequence[LogPass]) -> None:
        firsts = [0, *accumulate(len(each.keys) for each in going)]
        segments = [
            (keys, numbered)
            for each, first in zip(going, firsts, strict=False)
            for keys, numbered in zip(each.keys, each.numbered(first), strict=True)
        ]
        if not segments:
            return
        plans, job = self._plans, self._session.sparkContext.broadcast(segments)

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for at in batch.column("id").to_pylist():
                    keys, numbered = job.value[at]
                    with RemotePass(plans.value[numbered.log]) as executor:
                        yield from key_entries(numbered, executor.blocks(keys))

        numbers = self._session.range(0, len(segments), 1, len(segments))
        counts = {numbered.number: keys.totals.entries for keys, numbered in segments}
        found = marked(map_in_arrow(numbers, read, SCHEMA), counts)
        for each, first in zip(going, firsts, strict=False):
            each.marked = [found[first + keys.number] for keys in each.keys]

    def recopy(self) -> None:
        going = self._going()
        tasks = [(each, each.recopy_of(slice(None))) for each in going if each.is_one_task]
        plain = [(each, each.grouping()) for each in going if not each.is_one_task]
        for each, groups in self._run(plain):
            tasks += [(each, each.recopy_of(group)) for group in groups]
        for each, results in self._run(tasks):
            each.groups += map(group_from_json, results)

    def _going(self) -> list[LogPass]:
        return [each for each in self.passes if each.error is None]

    def _run(self, tasks: Sequence[tuple[LogPass, Work[T]]]) -> list[tuple[LogPass, T]]:
        """Run each task as a Spark task. Returns, in order, the values for logs that did not fail."""
        if not tasks:
            return []
        plans = self._plans

        def run(task: tuple[int, Work[T]]) -> Outcome[T]:
            number, work = task
            return attempt(plans.value[number], work)

        sent = [(each.number, work) for each, work in tasks]
        outcomes = self._session.sparkContext.parallelize(sent, len(sent)).map(run).collect()
        values = [each.take(outcome) for (each, _), outcome in zip(tasks, outcomes, strict=True)]
        return [
            (each, value)
            for (each, _), value in zip(tasks, values, strict=True)
            if each.error is None and value is not None
        ]

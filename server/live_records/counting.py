"""Counts the records of logs, for requests: views on the loop, counts in a thread.

A log may be cleaned, cut or replaced between its view and its count. Then it is counted again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.wire.numbers import Offset
from server.runtime.executors import Executor
from server.topics.topic import OfflineLog
from storage.counts.log_counts import (
    RecordCount,
    RecordsView,
    count_records,
    first_live_offset,
)
from storage.counts.segment_counts import ReadBudget
from storage.files.errors import SegmentRemoved, StorageError
from storage.log.log import PartitionLog
from storage.threads import any_thread

READ_BYTES_MAX = 1 << 30
"""A request reads so many bytes of batches; beyond that it gets estimates."""

LOGS_PER_STEP = 64
"""So many views are taken in one turn of the loop."""

TRIES = 3
NOT_SERVED = "it does not exist, or is offline"
CHANGING = "its log is being truncated or replaced: ask again"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one log."""

    log: PartitionLog | OfflineLog | None
    """None: there is no such partition."""
    offset: Offset | None = None
    """Count the records from here on, too."""
    finds_first: bool = False
    """Whether the offset of the first record is asked for. To find it, a batch may be read."""

    @property
    def served(self) -> PartitionLog | None:
        """The log, if it is in service."""
        if isinstance(self.log, PartitionLog) and self.log.offline_reason is None:
            return self.log
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRecords:
    """The data records of one log at one moment."""

    start_offset: Offset
    end_offset: Offset
    """The high watermark."""
    records: RecordCount
    first_offset: Offset | None
    """Of the first record; None if it was not asked for, if there is none, or if finding it would have
    read too much."""
    lag: RecordCount
    """Those at and above the offset of the question; all of them without one."""

    @property
    def is_exact(self) -> bool:
        return self.records.is_exact and self.lag.is_exact


async def count_live_records(
    questions: Iterable[Question], executor: Executor, *, read_bytes_max: int = READ_BYTES_MAX
) -> list[LiveRecords | str]:
    """Returns the answer to each question, or a clause that says why there is none.

    Takes 64 questions at a time, so that they may be many and made as they are taken.
    """
    budget, left = ReadBudget(read_bytes_max), iter(questions)
    answers: list[LiveRecords | str] = []
    while step := list(itertools.islice(left, LOGS_PER_STEP)):
        answers += await _step(step, executor, budget)
    return answers


async def _step(
    questions: Sequence[Question], executor: Executor, budget: ReadBudget
) -> list[LiveRecords | str]:
    logs = {n: log for n, each in enumerate(questions) if (log := each.served) is not None}
    answers: dict[int, LiveRecords | str] = {}
    for _ in range(TRIES):
        left = (n for n in logs if n not in answers)
        views = {n: view for n in left if (view := logs[n].records_view())}
        if not views:
            break
        counted = await executor.run(_count_all, views, questions, budget)
        answers |= {n: each for n, each in counted.items() if logs[n].rewrites == views[n].rewrites}
    return [answers.get(n, CHANGING if n in logs else NOT_SERVED) for n in range(len(questions))]


@any_thread
def _count_all(
    views: dict[int, RecordsView], questions: Sequence[Question], budget: ReadBudget
) -> dict[int, LiveRecords | str]:
    """Returns the answers by number; without those whose log has changed meanwhile."""
    answers: dict[int, LiveRecords | str] = {}
    for number, view in views.items():
        try:
            answers[number] = _count(view, questions[number], budget)
        except SegmentRemoved:
            continue
        except StorageError as error:
            answers[number] = f"it cannot be read: {error}"
    return answers


def _count(view: RecordsView, asked: Question, budget: ReadBudget) -> LiveRecords:
    records = count_records(view, view.log_start_offset, budget)
    return LiveRecords(
        start_offset=view.log_start_offset,
        end_offset=view.high_watermark,
        records=records,
        first_offset=first_live_offset(view, budget) if asked.finds_first else None,
        lag=records if asked.offset is None else count_records(view, asked.offset, budget),
    )

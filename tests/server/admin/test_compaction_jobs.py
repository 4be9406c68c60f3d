"""Jobs run to their end even if no client asks for their state, and report their result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import server.admin.compaction_jobs
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.progress import PassProgress
from cleaner.pool.runner import RunningPass
from cleaner.pool.status import Task
from cleaner.rules.pick import Reason
from cleaner.rules.report import PassReport
from server.admin.compaction_jobs import CompactionJobs
from server.runtime.part_state import PartState
from storage.log.log import PartitionLog
from tests.harness.compacted_log import CompactedLog

OnStart = Callable[[RunningPass], None]


def running_over(log: PartitionLog) -> RunningPass:
    return RunningPass(log, Task.CLEAN, Reason.REQUESTED.name, PassProgress(lambda: 0.0))


async def test_a_job_is_done_when_each_part_is() -> None:
    jobs, log = CompactionJobs(), CompactedLog()
    may_end = asyncio.Event()

    async def work(log: PartitionLog, on_start: OnStart) -> PassReport:
        on_start(running_over(log))
        await may_end.wait()
        return done.clean()

    done = CompactedLog()
    job = jobs.begin("now", [log.log, log.log], work)
    assert [part.state for part in job.parts] == [PartState.WAITING] * 2
    await asyncio.sleep(0)
    assert [part.state for part in job.parts] == [PartState.RUNNING] * 2
    may_end.set()
    await jobs.stop()

    assert job.is_over
    assert [part.state for part in job.parts] == [PartState.DONE] * 2
    assert jobs.get(job.id) is job


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (OSError("no"), PartState.FAILED, "no"),
        (KeyError(), PartState.FAILED, "KeyError()"),
        (CleaningAborted("the log was truncated"), PartState.STOPPED, "the log was truncated"),
    ],
)
async def test_a_part_that_fails_says_why(error: Exception, state: PartState, text: str) -> None:
    jobs, log = CompactionJobs(), CompactedLog()

    async def work(_log: PartitionLog, _on_start: OnStart) -> PassReport:
        raise error

    job = jobs.begin("now", [log.log], work)
    await jobs.stop()

    assert (job.parts[0].state, job.parts[0].error) == (state, text)


@pytest.mark.parametrize("turns", [0, 3])
async def test_a_part_that_is_cancelled_while_it_waits_ends_at_once(turns: int) -> None:
    jobs, log = CompactionJobs(), CompactedLog()

    async def work(_log: PartitionLog, _on_start: OnStart) -> PassReport:
        await asyncio.Event().wait()
        raise AssertionError("it never gets its turn")

    job = jobs.begin("now", [log.log], work)
    for _ in range(turns):
        await asyncio.sleep(0)
    job.parts[0].cancel()

    assert (job.parts[0].state, job.parts[0].error) == (PartState.STOPPED, "it was cancelled")
    assert job.is_over
    await jobs.stop()


async def test_cancelling_a_finished_part_changes_nothing() -> None:
    jobs, log = CompactionJobs(), CompactedLog()

    async def work(_log: PartitionLog, _on_start: OnStart) -> PassReport:
        return log.clean()

    job = jobs.begin("now", [log.log], work)
    await jobs.stop()
    job.parts[0].cancel()

    assert job.parts[0].state is PartState.DONE


async def test_only_the_last_finished_jobs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.admin.compaction_jobs, "FINISHED_MAX", 2)
    jobs, log = CompactionJobs(), CompactedLog()

    async def work(_log: PartitionLog, _on_start: OnStart) -> PassReport:
        return log.clean()

    for _ in range(4):
        jobs.begin("now", [log.log], work)
        await jobs.stop()

    assert [jobs.get(number) is not None for number in range(1, 5)] == [False, True, True, True]

"""Counts the keys of logs in the background, while the pool has nothing else to do.

    a look finds no eligible log     the logs that it has found to count, one after the other
    a pass or another task begins    the task ends within a chunk, before that one claims its log

It has no slot of its own, so no pass waits for it; it runs in a thread of the passes, at their low
priority and within their I/O budgets. Its log is claimed while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from cleaner.pacing.clock import Clock
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.passes.index_ahead import AheadCounting, CountPlan
from cleaner.pool.key_estimates import KeyEstimates
from cleaner.pool.runner import Runner, RunningPass
from cleaner.pool.status import Task
from cleaner.rules.look import COUNTS_PER_LOOK
from cleaner.rules.pick import Reason
from protocol.wire.errors import ProtocolError
from storage.files.errors import SegmentRemoved, StorageError
from storage.log.log import PartitionLog
from storage.threads import loop_thread

FAILED_REST_SECONDS = 600.0
"""How long a log is not counted after its segments could not be read, or its sidecars not written."""

_log = logging.getLogger("cleaner.pool.pool")


@loop_thread
class IndexAhead:
    """At most one task at a time, over one log at a time. Owned by the pool."""

    __slots__ = (
        "_clock",
        "_counts",
        "_gives_way",
        "_may_run",
        "_runner",
        "_running",
        "_task",
        "_wake",
    )

    def __init__(
        self,
        runner: Runner,
        counts: KeyEstimates,
        *,
        clock: Clock,
        may_run: Callable[[PartitionLog], bool],
        wake: Callable[[], None],
    ) -> None:
        """
        Args:
            may_run: whether a task may run over a log now.
            wake: lets the pool look for more logs.
        """
        # Constant after construction.
        self._runner = runner
        self._counts = counts
        self._clock = clock
        self._may_run = may_run
        self._wake = wake
        # State.
        self._task: asyncio.Task[None] | None = None
        self._gives_way = False
        """Whether the task was asked to end."""
        self._running: RunningPass | None = None

    def begin(self, logs: Sequence[PartitionLog]) -> None:
        """Count these logs, unless something else runs."""
        if logs and self._task is None and self._is_idle:
            self._gives_way = False
            work = self._count_all(logs)
            self._task = asyncio.get_running_loop().create_task(work, name="index-ahead")

    @property
    def _is_idle(self) -> bool:
        tasks = self._runner.running.values()
        # As long as a lease has no thread, another process works on it.
        return all(each.task is Task.LEASE and each.thread_id is None for each in tasks)

    def halt(self, because: str) -> None:
        """Stop within a chunk."""
        self._gives_way = True
        if self._running is not None:
            self._running.halt(because)

    async def give_way(self) -> None:
        """Stop within a chunk, and return when that is done: the caller may claim any log at once."""
        while self._task is not None:
            self.halt("another task begins")
            await asyncio.wait([self._task])

    async def _count_all(self, logs: Sequence[PartitionLog]) -> None:
        try:
            for log in logs:
                if self._gives_way or not self._is_idle or self._runner.is_stopping:
                    return
                if self._may_run(log) and log.offline_reason is None:
                    await self._count(log)
        except Exception:  # noqa: BLE001 - the next look tries again
            _log.exception("counting keys failed; a later look begins again")
            return
        finally:
            self._task = None
        if len(logs) == COUNTS_PER_LOOK:
            self._wake()

    async def _count(self, log: PartitionLog) -> None:
        plan = self._counts.plan(log)
        if plan is None:
            return  # It was switched off, or the log has changed since the look.
        running = self._running = self._runner.claim(log, Task.INDEX, Reason.INDEX_AHEAD)
        began, counting = self._clock.monotonic(), AheadCounting(plan)
        try:
            rest_s = await self._run(running, plan, counting)
            result = await self._runner.in_thread(running, counting.result)
            seconds = self._clock.monotonic() - began
            self._counts.counted(plan, result, seconds=seconds, rest_s=rest_s)
        finally:
            self._running = None
            self._runner.release(running)

    async def _run(self, running: RunningPass, plan: CountPlan, counting: AheadCounting) -> float:
        """Count in a thread. Returns how long the log rests, in seconds."""
        partition, settings = running.log.topic_partition, self._runner.settings

        def work() -> None:
            meter = self._runner.meter(running, plan.view.generation, PassMeter)
            counting.run(settings, meter)

        try:
            await self._runner.in_thread(running, work)
        except (CleaningAborted, SegmentRemoved) as reason:
            because = running.stopped_because or str(reason)
            _log.debug("%s: counting its keys stopped: %s", partition, because)
        except ProtocolError as damage:
            # The pass reports it, and cleans around it.
            _log.info("%s: its keys are not counted until the next pass: %s", partition, damage)
            return math.inf
        except StorageError as error:
            _log.info("%s: its keys could not be counted: %s", partition, error)
            return FAILED_REST_SECONDS
        except Exception:  # noqa: BLE001 - the cause may persist
            _log.exception("%s: counting its keys failed", partition)
            return FAILED_REST_SECONDS
        return 0.0

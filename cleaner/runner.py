"""Where passes, rehearsals, digests and searches run: in threads at low priority, one a log at a time.

    slots           one for each thread: who has one plans, claims the log, and runs at once
    claim           keeps all others off the log until `release`
    searches        look for a key, in a thread of their own, and claim nothing

Part of the pool, which decides what runs; used on its event loop. What runs in a thread sees only its
plan, its meter and its stop event.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from types import MappingProxyType
from typing import TypeVar

from cleaner.clean import clean
from cleaner.cleaning_plan import CleaningPlan
from cleaner.clock import Clock
from cleaner.dry_run import DryMeter, DryRun, dry_run
from cleaner.key_search import KeyHistory, find_key
from cleaner.log_digest import LogDigest, log_digest
from cleaner.meter import CleaningAborted, PassMeter
from cleaner.pick import Reason
from cleaner.pool_status import Task
from cleaner.probe import CleanerProbe
from cleaner.progress import PassProgress
from cleaner.rehearsed_segment import rehearsed_view, scratch_files
from cleaner.remote_commit import commit
from cleaner.remote_plan import RemoteResult
from cleaner.report import PassReport
from cleaner.running import RunningPass
from cleaner.settings import CleanerSettings
from cleaner.slots import Slots
from cleaner.throttle import Throttle
from storage.errors import SegmentRemoved
from storage.log import PartitionLog
from storage.topic_partition import TopicPartition

Meter = TypeVar("Meter", bound=PassMeter)
T = TypeVar("T")

READ_TRIES = 5
"""What only reads begins anew where a pass or retention has taken a segment away from under it."""

STOPS = "the broker stops"


class Runner:
    """The pool's threads, and what runs in them."""

    __slots__ = (
        "_clock",
        "_executor",
        "_is_stopping",
        "_probe",
        "_running",
        "_search_executor",
        "_searches",
        "settings",
        "slots",
        "throttle",
    )

    def __init__(self, settings: CleanerSettings, *, clock: Clock, probe: CleanerProbe) -> None:
        # Constant after construction.
        self._clock = clock
        self._probe = probe
        self.throttle = Throttle(settings.io_rates, clock=clock.monotonic)
        self.slots = Slots(settings.threads)
        self._search_executor = _executor("key-search", 1, settings.thread_niceness)
        # State.
        self._executor = _executor("cleaner", settings.threads, settings.thread_niceness)
        self.settings = settings
        """What the next ones go by."""
        self._is_stopping = False
        self._running: dict[TopicPartition, RunningPass] = {}
        self._searches: set[RunningPass] = set()

    @property
    def running(self) -> Mapping[TopicPartition, RunningPass]:
        """What runs over which log; searches are not among it."""
        return MappingProxyType(self._running)

    @property
    def threads(self) -> int:
        """So many passes and rehearsals may run at once."""
        return self.settings.threads

    def configure(self, settings: CleanerSettings) -> None:
        """Go by other settings: what runs by the I/O budgets, what begins by all of them.

        With fewer threads all that runs goes on, and nothing begins until enough have ended.
        """
        before, self.settings = self.settings, settings
        self.throttle.set_rates(settings.io_rates)
        if settings.threads != before.threads:
            # The threads of the old one end with what they have.
            self._executor.shutdown(wait=False)
            self._executor = _executor("cleaner", settings.threads, settings.thread_niceness)
            self.slots.resize(settings.threads)

    # ---------------------------------------------------------------- claims

    async def until_idle(self, partition: TopicPartition) -> None:
        """Wait until nothing runs over a log."""
        while (running := self._running.get(partition)) is not None:
            await running.ended.wait()

    def claim(self, log: PartitionLog, task: Task, reason: Reason) -> RunningPass:
        """Keep others off a log. Nothing may be awaited between its plan and this."""
        assert log.topic_partition not in self._running
        running = self._begin(log, task, reason)
        self._running[log.topic_partition] = running
        return running

    def release(self, running: RunningPass) -> None:
        """Let others have the log."""
        del self._running[running.log.topic_partition]
        _end(running)

    def halt(self, because: str, *, where: Callable[[PartitionLog], bool]) -> None:
        """Stop what runs over some logs, within a chunk."""
        for running in tuple(self._running.values()):
            if where(running.log):
                running.halt(because)

    def begin_to_stop(self) -> None:
        """Stop all that runs, and all that still begins."""
        self._is_stopping = True
        for running in (*self._running.values(), *self._searches):
            running.halt(STOPS)

    async def drain(self) -> None:
        """Wait for the end of all, and give the threads back."""
        for running in (*self._running.values(), *self._searches):
            await running.ended.wait()
        self._executor.shutdown()
        self._search_executor.shutdown()

    def _begin(self, log: PartitionLog, task: Task, reason: Reason) -> RunningPass:
        running = RunningPass(log, task, reason.name, PassProgress(self._clock.monotonic))
        if self._is_stopping:
            running.halt(STOPS)
        return running

    # ---------------------------------------------------------------- in threads

    async def clean(self, running: RunningPass, plan: CleaningPlan) -> PassReport:
        """Execute a claimed log's plan in a thread. Raises as `cleaner.clean.clean`."""
        settings, monotonic = self.settings, self._clock.monotonic

        def work() -> PassReport:
            meter = self._meter(running, plan.view.generation, PassMeter)
            return clean(running.log, plan, settings, meter=meter, monotonic=monotonic)

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def commit(
        self, running: RunningPass, plan: CleaningPlan, folder: str, result: RemoteResult
    ) -> PassReport:
        """Commit what others made of a claimed log's plan. Raises as `cleaner.remote_commit.commit`."""
        settings, monotonic = self.settings, self._clock.monotonic

        def work() -> PassReport:
            meter = self._meter(running, plan.view.generation, PassMeter)
            log = running.log
            return commit(log, plan, folder, result, settings, meter=meter, monotonic=monotonic)

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def rehearse(
        self, running: RunningPass, plan: CleaningPlan, *, past: Sequence[PassReport]
    ) -> DryRun:
        """Rehearse a claimed log's plan in a thread. Raises as `cleaner.clean.clean`."""
        settings, monotonic = self.settings, self._clock.monotonic
        rates = self.throttle.present_rates

        def work() -> DryRun:
            meter = self._meter(running, plan.view.generation, DryMeter)
            return dry_run(
                running.log,
                plan,
                settings,
                meter=meter,
                monotonic=monotonic,
                rates=rates,
                past=past,
            )

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def find_key(
        self, log: PartitionLog, key: bytes, on_start: Callable[[RunningPass], None]
    ) -> KeyHistory:
        """Look for a key in a thread. Raises as `CleanerPool.find_key`."""
        running = self._begin(log, Task.SEARCH, Reason.REQUESTED)
        self._searches.add(running)
        on_start(running)
        try:
            return await _again(lambda: self._find_key(running, key))
        finally:
            self._searches.discard(running)
            _end(running)

    async def _find_key(self, running: RunningPass, key: bytes) -> KeyHistory:
        if self._is_stopping:
            raise CleaningAborted(STOPS)
        view, settings = running.log.cleaning_view(as_if_rolled=True), self.settings
        now_ms = self._clock.now_ms()

        def work() -> KeyHistory:
            meter = self._meter(running, view.generation, PassMeter)
            return find_key(view, key, settings, meter=meter, now_ms=now_ms)

        return await asyncio.get_running_loop().run_in_executor(self._search_executor, work)

    async def digest(self, running: RunningPass, end_offset: int | None) -> LogDigest:
        """Sum a claimed log's last records in a thread. Raises as `CleanerPool.digest`."""
        return await _again(lambda: self._digest(running, end_offset))

    async def _digest(self, running: RunningPass, end_offset: int | None) -> LogDigest:
        view, settings = running.log.cleaning_view(as_if_rolled=True), self.settings

        def work() -> LogDigest:
            meter = self._meter(running, view.generation, PassMeter)
            with closing(scratch_files(running.log)) as scratch:
                looked_at = rehearsed_view(view, scratch)
                return log_digest(looked_at, end_offset, settings, meter=meter)

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _meter(self, running: RunningPass, generation: int, kind: type[Meter]) -> Meter:
        """The account of what begins now; raises `CleaningAborted` if it need not. In its thread."""
        running.progress.start()
        log = running.log
        meter = kind(
            throttle=self.throttle,
            probe=self._probe,
            sleep=running.stop.wait,
            is_stale=lambda: log.generation != generation,
            progress=running.progress,
        )
        meter.check()
        return meter


async def _again(read: Callable[[], Awaitable[T]]) -> T:
    """What `read` comes to, with other views where segments went."""
    for _ in range(READ_TRIES - 1):
        with suppress(SegmentRemoved):
            return await read()
    return await read()


def _end(running: RunningPass) -> None:
    running.progress.end()
    running.ended.set()


def _executor(name: str, threads: int, niceness: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        threads, thread_name_prefix=name, initializer=_lower_priority, initargs=(niceness,)
    )


def _lower_priority(niceness: int) -> None:
    """Make the calling thread step back behind the event loop's; Linux does it by thread."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

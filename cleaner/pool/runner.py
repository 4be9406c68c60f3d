"""Runs passes, rehearsals, inspections and searches in threads at low priority, one task per log.

    slots           one for each thread: a task that gets a slot plans, claims the log and runs at once
    claim           keeps all other tasks off the log until `release`
    searches        look for a key, in a separate thread, and claim nothing

Part of the pool, which decides what runs; used on its event loop. Code that runs in a thread sees only
its plan, its meter and its stop event.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from cleaner.expiry.sweep import TRIES_MAX, Append, Sweep, SweepPlan
from cleaner.inspect.dry_run import DryMeter, DryRun, dry_run
from cleaner.inspect.key_search import KeyHistory, find_key
from cleaner.inspect.key_traces import KeyTraces, trace_keys
from cleaner.inspect.rehearsed_segment import rehearsed_view, scratch_files
from cleaner.pacing.clock import Clock
from cleaner.pacing.meter import CleaningAborted, PassMeter
from cleaner.pacing.probe import CleanerProbe
from cleaner.pacing.progress import PassProgress
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import Throttle
from cleaner.passes.certificate import Ledger, PassCertificates, new_pass_id
from cleaner.passes.clean import clean
from cleaner.pool.inspection import Inspection
from cleaner.pool.status import RunningStatus, Task
from cleaner.pool.topic_limits import TopicBudgets, is_out_of_window
from cleaner.pool.unkeyed_mover import LoopMover, UnkeyedTopics
from cleaner.remote.commit import commit
from cleaner.remote.plan import RemoteResult
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.expiry_report import ExpiryReport
from cleaner.rules.hold import Hold
from cleaner.rules.pick import Reason
from cleaner.rules.report import PassReport
from protocol.wire.numbers import Offset
from storage.files.errors import SegmentRemoved
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleaningView
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

Meter = TypeVar("Meter", bound=PassMeter)
T = TypeVar("T")

READ_TRIES = 5
"""How many times a task that only reads is tried if a pass or retention removes segments meanwhile."""

NO_LEDGERS: Mapping[str, Ledger] = MappingProxyType({})

BY_THEMSELVES = (Task.CLEAN, Task.EXPIRE, Task.INDEX)
"""The tasks that the pool begins without a request."""

BROKER_STOPS = "the broker is stopping"
CANCELLED = "it was cancelled"


@loop_thread
class RunningPass:
    """A running pass or other task: its progress, the way to stop it, and the event of its end."""

    __slots__ = (
        "ended", "log", "on_halt", "progress", "reason", "stop", "stopped_because", "task",
        "thread_id",
    )  # fmt: skip

    def __init__(self, log: PartitionLog, task: Task, reason: str, progress: PassProgress) -> None:
        # Constant after construction.
        self.log = log
        self.task = task
        self.reason = reason
        """The name of the `pick.Reason`."""
        self.progress = progress
        self.stop = threading.Event()
        self.ended = asyncio.Event()
        # State.
        self.stopped_because: str | None = None
        self.thread_id: int | None = None
        """The thread that executes it; None before that, and for another process's pass."""
        self.on_halt: Callable[[], None] = lambda: None
        """Called on the event loop by `halt`, for tasks without a thread that checks `stop`."""

    def halt(self, because: str) -> None:
        """Stop the task within a chunk."""
        self.stopped_because = self.stopped_because or because
        self.stop.set()
        self.on_halt()

    def end(self) -> None:
        """Record that the task has ended, and wake those who wait for that."""
        self.progress.end()
        self.ended.set()

    def status(self) -> RunningStatus:
        """Returns the current status."""
        return RunningStatus(
            topic_partition=self.log.topic_partition,
            task=self.task,
            reason=self.reason,
            progress=self.progress.snapshot(),
        )


@loop_thread
class Slots:
    """A first-come-first-served semaphore: `async with slots:` waits for a free slot.

    The number of slots can change at any time. If it drops below the slots in use, all holders keep
    theirs, and no slot is given out until enough are free.
    """

    __slots__ = ("_count", "_taken", "_waiters")

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        """The futures of the waiting tasks, in order."""

    def resize(self, count: int) -> None:
        """Change the number of slots."""
        self._count = count
        self._grant()

    async def __aenter__(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._free()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free()

    def _free(self) -> None:
        self._taken -= 1
        self._grant()

    def _grant(self) -> None:
        while self._waiters and self._taken < self._count:
            turn = self._waiters.popleft()
            if not turn.cancelled():
                self._taken += 1
                turn.set_result(None)
        self._check_no_slot_is_idle()

    def _check_no_slot_is_idle(self) -> None:
        assert self._taken >= 0
        assert not self._waiters or self._taken >= self._count


@loop_thread
class Runner:
    """Owns the pool's threads and the tasks that run in them."""

    __slots__ = (
        "_clock", "_executor", "_ledgers", "_list_executor", "_probe", "_running", "_search_executor",
        "_searches", "_topic_budgets", "_unkeyed", "is_stopping", "settings", "slots", "throttle",
    )  # fmt: skip

    def __init__(
        self,
        settings: CleanerSettings,
        *,
        clock: Clock,
        probe: CleanerProbe,
        ledgers: Mapping[str, Ledger] = NO_LEDGERS,
        unkeyed: UnkeyedTopics | None = None,
    ) -> None:
        """
        Args:
            ledgers: get the certificates of passes, by the ids of the log directories.
            unkeyed: the topics that take records without a key; None: such records stay.
        """
        # Constant after construction.
        self._unkeyed = unkeyed
        self._clock = clock
        self._probe = probe
        self._ledgers = ledgers
        self.throttle = Throttle(settings.io_rates, clock=clock.monotonic)
        self.slots = Slots(settings.threads)
        self._search_executor = _executor("key-search", 1, settings.thread_niceness)
        self._list_executor = _executor("cleaner-list", 1, settings.thread_niceness)
        # State.
        self._executor = _executor("cleaner", settings.threads, settings.thread_niceness)
        self.settings = settings
        """The settings of the tasks that start next."""
        self.is_stopping = False
        self._running: dict[TopicPartition, RunningPass] = {}
        self._searches: set[RunningPass] = set()
        self._topic_budgets = TopicBudgets(clock.monotonic)

    @property
    def running(self) -> Mapping[TopicPartition, RunningPass]:
        """The running task of each log, without searches."""
        return MappingProxyType(self._running)

    @property
    @any_thread
    def tasks(self) -> tuple[RunningPass, ...]:
        """All running tasks, with the searches."""
        # Each copy is one step of the interpreter; tasks may come and go in between.
        return (*self._running.values(), *self._searches)

    @property
    def threads(self) -> int:
        """How many passes and rehearsals may run at once."""
        return self.settings.threads

    def follow_topics(self) -> None:
        """Stop passes whose window has ended, and forget the budgets of topics without passes."""
        self._topic_budgets.keep(task.log for task in self.tasks)
        now_ms = self._clock.now_ms()
        for task in self._running.values():
            if task.task in BY_THEMSELVES and is_out_of_window(
                task.reason, task.log.config, now_ms
            ):
                task.halt("its window has ended")

    def configure(self, settings: CleanerSettings) -> None:
        """Apply new settings: the I/O budgets also to running tasks, the rest to later ones.

        With fewer threads all running tasks continue, and none starts until enough have ended.
        """
        before, self.settings = self.settings, settings
        self.throttle.set_rates(settings.io_rates)
        if settings.threads != before.threads:
            # The old executor's threads finish their tasks and end.
            self._executor.shutdown(wait=False)
            self._executor = _executor("cleaner", settings.threads, settings.thread_niceness)
            self.slots.resize(settings.threads)

    async def compacted(
        self, logs: Callable[[], Iterable[PartitionLog]]
    ) -> dict[TopicPartition, PartitionLog]:
        """Returns those of all logs that are compacted. A thread lists them: there may be 100,000."""

        def work() -> dict[TopicPartition, PartitionLog]:
            return {log.topic_partition: log for log in logs() if log.config.is_compacted}

        return await asyncio.get_running_loop().run_in_executor(self._list_executor, work)

    # ---------------------------------------------------------------- claims

    async def until_idle(self, partition: TopicPartition) -> None:
        """Wait until no task runs over a log."""
        while (running := self._running.get(partition)) is not None:
            await running.ended.wait()

    def claim(self, log: PartitionLog, task: Task, reason: Reason) -> RunningPass:
        """Claim a log for a task. The caller must not await anything between planning and this."""
        assert log.topic_partition not in self._running
        running = self._begin(log, task, reason)
        self._running[log.topic_partition] = running
        return running

    def release(self, running: RunningPass) -> None:
        """Release the log of a task."""
        del self._running[running.log.topic_partition]
        running.end()

    def halt(self, because: str, *, where: Callable[[PartitionLog], bool]) -> None:
        """Stop the tasks over the logs selected by `where`, within a chunk."""
        for running in tuple(self._running.values()):
            if where(running.log):
                running.halt(because)

    def request_stop(self) -> None:
        """Stop all running tasks, and all that start later."""
        self.is_stopping = True
        for running in self.tasks:
            running.halt(BROKER_STOPS)

    def check_not_stopping(self) -> None:
        """Raises `CleaningAborted` once the tasks have been stopped."""
        if self.is_stopping:
            raise CleaningAborted(BROKER_STOPS)

    async def drain(self) -> None:
        """Wait until all tasks have ended, and shut the threads down."""
        for running in self.tasks:
            await running.ended.wait()
        self._executor.shutdown()
        self._search_executor.shutdown()
        self._list_executor.shutdown()

    def _begin(self, log: PartitionLog, task: Task, reason: Reason) -> RunningPass:
        running = RunningPass(log, task, reason.name, PassProgress(self._clock.monotonic))
        if self.is_stopping:
            running.halt(BROKER_STOPS)
        return running

    # ---------------------------------------------------------------- in threads

    async def clean(self, running: RunningPass, plan: CleaningPlan) -> PassReport:
        """Execute a claimed log's plan in a thread. Raises as `cleaner.passes.clean.clean`."""
        settings, monotonic = self.settings, self._clock.monotonic
        mover_for = self._mover_of(running.log, plan, is_rehearsal=False)

        def work() -> PassReport:
            meter = self.meter(running, plan.view.generation, PassMeter)
            return clean(
                running.log.cleaning,
                plan,
                settings,
                meter=meter,
                monotonic=monotonic,
                certificates=self._certificates(running.log, plan),
                mover=mover_for(meter),
            )

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def commit(
        self, running: RunningPass, plan: CleaningPlan, folder: str, result: RemoteResult
    ) -> PassReport:
        """Commit an executor's result for a claimed log. Raises as `cleaner.remote.commit.commit`."""
        settings, monotonic = self.settings, self._clock.monotonic

        def work() -> PassReport:
            meter = self.meter(running, plan.view.generation, PassMeter)
            log = running.log
            return commit(
                log,
                plan,
                folder,
                result,
                settings,
                meter=meter,
                monotonic=monotonic,
                certificates=self._certificates(log, plan),
            )

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def rehearse(
        self, running: RunningPass, plan: CleaningPlan, *, past: Sequence[PassReport]
    ) -> DryRun:
        """Rehearse a claimed log's plan in a thread. Raises as `cleaner.passes.clean.clean`."""
        settings, monotonic = self.settings, self._clock.monotonic
        rates = self.throttle.effective_rates
        rates = replace(rates, total=min(rates.total, running.log.config.io_rate))
        mover_for = self._mover_of(running.log, plan, is_rehearsal=True)

        def work() -> DryRun:
            meter = self.meter(running, plan.view.generation, DryMeter)
            return dry_run(
                running.log,
                plan,
                settings,
                meter=meter,
                monotonic=monotonic,
                rates=rates,
                past=past,
                mover=mover_for(meter),
            )

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def expire(self, running: RunningPass, plan: SweepPlan, append: Append) -> ExpiryReport:
        """Sweep a claimed log for expired values: in a thread, but the appends.

        Raises as `Sweep.next_round` and `Sweep.append`.
        """
        settings, clock = self.settings, self._clock
        began = clock.monotonic()

        def begin() -> Sweep:
            meter = self.meter(running, plan.view.generation, PassMeter)
            return Sweep(running.log, plan, settings, meter=meter, now_ms=clock.now_ms)

        sweep = await self.in_thread(running, begin)
        while await self.in_thread(running, sweep.next_round):
            tries = 0
            while await self.in_thread(running, sweep.prepare):
                tries = 0 if sweep.append(append) else tries + 1
                if tries == TRIES_MAX:
                    sweep.give_up()
                    break
        return sweep.report(clock.monotonic() - began)

    async def in_thread(self, running: RunningPass, work: Callable[[], T]) -> T:
        """Returns the result of one step of a task, executed in a thread. Raises what it raises."""

        def traced() -> T:
            running.thread_id = threading.get_ident()
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._executor, traced)

    async def find_key(
        self,
        log: PartitionLog,
        key: bytes,
        hold: Hold,
        on_start: Callable[[RunningPass], None],
    ) -> KeyHistory:
        """Search for a key in a thread. Raises as `CleanerPool.find_key`."""
        running = self._begin(log, Task.SEARCH, Reason.REQUESTED)
        self._searches.add(running)
        on_start(running)
        try:
            return await _retry_if_removed(lambda: self._find_key(running, key, hold))
        finally:
            self._searches.discard(running)
            running.end()

    async def _find_key(self, running: RunningPass, key: bytes, hold: Hold) -> KeyHistory:
        self.check_not_stopping()
        view, settings = running.log.cleaning_view(as_if_rolled=True), self.settings
        now_ms = self._clock.now_ms()

        def work() -> KeyHistory:
            meter = self.meter(running, view.generation, PassMeter)
            return find_key(view, key, settings, meter=meter, now_ms=now_ms, hold=hold)

        return await asyncio.get_running_loop().run_in_executor(self._search_executor, work)

    async def trace_keys(
        self,
        log: PartitionLog,
        hashes: Collection[bytes],
        start_offset: Offset,
        end_offset: Offset,
        on_start: Callable[[RunningPass], None],
        before: Callable[[CleaningView], None],
        *,
        trusts_sidecars: bool,
    ) -> KeyTraces:
        """Look for keys in a thread. Raises as `CleanerPool.trace_keys`."""
        running = self._begin(log, Task.SEARCH, Reason.REQUESTED)
        self._searches.add(running)
        on_start(running)

        async def read() -> KeyTraces:
            self.check_not_stopping()
            view, settings = log.cleaning_view(as_if_rolled=True), self.settings

            def work() -> KeyTraces:
                meter = self.meter(running, view.generation, PassMeter)
                before(view)
                return trace_keys(
                    view,
                    hashes,
                    settings,
                    meter=meter,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    trusts_sidecars=trusts_sidecars,
                )

            return await asyncio.get_running_loop().run_in_executor(self._search_executor, work)

        try:
            return await _retry_if_removed(read)
        finally:
            self._searches.discard(running)
            running.end()

    async def inspect(self, running: RunningPass, inspection: Inspection[T]) -> T:
        """Inspect a claimed log in a thread. Raises as `CleanerPool.inspect`."""
        return await _retry_if_removed(lambda: self._inspect(running, inspection))

    async def _inspect(self, running: RunningPass, inspection: Inspection[T]) -> T:
        view, settings = running.log.cleaning_view(as_if_rolled=True), self.settings
        now_ms = self._clock.now_ms()

        def work() -> T:
            meter = self.meter(running, view.generation, PassMeter)
            with closing(scratch_files(running.log)) as scratch:
                looked_at = rehearsed_view(view, scratch)
                return inspection.run(looked_at, settings, meter, now_ms)

        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _mover_of(
        self, log: PartitionLog, plan: CleaningPlan, *, is_rehearsal: bool
    ) -> Callable[[PassMeter], LoopMover | None]:
        """Returns what makes a pass's mover of records without a key, in the thread of the pass.

        The plan's settings decide: a preview rehearses others than those of the log.
        """
        config = plan.view.config
        if self._unkeyed is None or not config.moves_unkeyed_records:
            return lambda _: None
        topics, loop, clock = self._unkeyed, asyncio.get_running_loop(), self._clock
        name = config.compaction_unkeyed_topic
        return lambda meter: LoopMover(
            topics, name, log, meter, loop=loop, clock=clock, is_rehearsal=is_rehearsal
        )

    @any_thread
    def _certificates(self, log: PartitionLog, plan: CleaningPlan) -> PassCertificates:
        """Returns what certifies a pass, if its log's directory has a ledger."""
        return PassCertificates(
            self._ledgers.get(log.identity.directory_id),
            log.identity,
            digest_kind=self.settings.ledger_digest,
            pass_id=new_pass_id(plan.stamp_ms),
        )

    @any_thread
    def meter(self, running: RunningPass, generation: int, kind: type[Meter]) -> Meter:
        """Returns the meter of a task; call it in the task's thread. Raises `CleaningAborted`."""
        running.thread_id = threading.get_ident()
        running.progress.start()
        log = running.log
        meter = kind(
            throttle=self.throttle,
            probe=self._probe,
            sleep=running.stop.wait,
            is_stale=lambda: log.generation != generation,
            progress=running.progress,
            topic_budget=lambda: self._topic_budgets.of(log),
        )
        meter.check()
        return meter


async def _retry_if_removed(read: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `read`, which is retried with a new view if segments were removed."""
    for _ in range(READ_TRIES - 1):
        with suppress(SegmentRemoved):
            return await read()
    return await read()


def _executor(name: str, threads: int, niceness: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        threads, thread_name_prefix=name, initializer=_lower_priority, initargs=(niceness,)
    )


def _lower_priority(niceness: int) -> None:
    """Give the calling thread a lower priority than the event loop's; Linux has it per thread."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

"""The pool of cleaning workers: what is cleaned when, and how it ended.

    each worker:   look at all logs -> clean the most urgent one in a thread -> look again at once,
                   or, if there was none, at the next moment that changes that, after a back-off
                   at the latest

A pass runs in a thread of its own executor at low priority, one pass a log at a time. What a pass
raises ends that pass only: the partition rests in quarantine, with the reason, and is tried again
later. What a worker itself raises is logged and counted, and the worker goes on.

All state here belongs to the event loop's thread; with `runner.py`, `running.py` and `slots.py`, which
have the threads, this is the part of the cleaner that knows asyncio.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from cleaner.cleaning_plan import CleaningPlan
from cleaner.clock import Clock
from cleaner.dry_run import DryRun
from cleaner.key_search import KeyHistory
from cleaner.log_digest import LogDigest
from cleaner.look import Look
from cleaner.lookout import Lookout
from cleaner.meter import CleaningAborted
from cleaner.pass_ends import PassEnds, reason_of
from cleaner.paused import NOTHING_PAUSED, CleaningPaused, Paused, PauseScope
from cleaner.pick import Assessment, Reason
from cleaner.pool_status import PoolStatus, Task
from cleaner.probe import CleanerProbe
from cleaner.remote_plan import RemoteResult
from cleaner.report import PassReport
from cleaner.runner import STOPS, Runner
from cleaner.running import RunningPass
from cleaner.settings import CleanerSettings
from cleaner.urgency import Candidate, urgency
from cleaner.verify_pass import VerificationFailed
from protocol.errors import ProtocolError
from storage.errors import LogOffline, SegmentRemoved, StorageError, SwapRefused
from storage.log import PartitionLog

_log = logging.getLogger("cleaner.pool")

T = TypeVar("T")
Plan = TypeVar("Plan")

SEGMENTS_A_TURN = 5000
"""So many segments are looked at, a fifth of a microsecond each, before the loop gets a turn."""

LOG_IN_SEGMENTS = 100
"""To look at a log costs as much as so many segments."""


class LogBusy(Exception):
    """Something runs over the log."""


class CleanerPool:
    """Cleans compacted logs in the background, and on request. Used on one event loop."""

    __slots__ = (
        "_clock",
        "_ends",
        "_logs",
        "_lookout",
        "_next_look_at",
        "_paused",
        "_picking",
        "_probe",
        "_rehearsing",
        "_runner",
        "_stopping",
        "_waking",
        "_workers",
    )

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        settings: CleanerSettings,
        *,
        clock: Clock,
        probe: CleanerProbe,
    ) -> None:
        """`logs` gives all logs that are there at the moment, compacted or not."""
        # Constant after construction.
        self._logs = logs
        self._clock = clock
        self._probe = probe
        self._runner = Runner(settings, clock=clock, probe=probe)
        self._picking = asyncio.Lock()
        self._rehearsing = asyncio.Lock()
        self._stopping = asyncio.Event()
        # State.
        self._waking = asyncio.Event()
        """Ends the rest of the workers; another one stands for their next rest."""
        self._ends = PassEnds(settings, clock=clock, probe=probe)
        self._lookout = Lookout(clock)
        self._next_look_at = math.inf
        """Monotonic seconds at which a log becomes eligible, as far as the last look could tell."""
        self._paused = NOTHING_PAUSED
        self._workers: dict[int, asyncio.Task[None]] = {}

    # ---------------------------------------------------------------- for the broker

    def start(self) -> None:
        """Begin to clean in the background, with as many workers as there are threads."""
        assert not self._workers
        self._hire()

    async def stop(self) -> None:
        """Stop every pass within a chunk, wait for their ends, and start none any more."""
        self._stopping.set()
        self._wake()
        self._runner.begin_to_stop()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        await self._runner.drain()

    def configure(self, settings: CleanerSettings) -> None:
        """Go by other settings: passes under way by the I/O budgets, the next ones by all of them.

        With fewer threads no pass is stopped; workers end as they have no pass to run.
        """
        self._runner.configure(settings)
        if self._workers:
            self._hire()
        self._wake()

    def set_guard_rate(self, bytes_per_second: float) -> None:
        """Go no faster than the latency guard says, over reads and writes."""
        self._runner.throttle.set_guard_rate(bytes_per_second)

    def short_of_space(self, directory_ids: frozenset[str]) -> None:
        """Hurry while the disks of these log directories are nearly full; none: go on as before.

        Their logs come first, by the bytes that a pass frees, and no budget holds any pass back.
        """
        self._lookout.short_of_space = directory_ids
        self._runner.throttle.lift(bool(directory_ids))
        self._wake()

    def pause(self, paused: Paused) -> None:
        """Clean only what is not paused from now on; a pass over what newly is stops within a chunk."""
        before, self._paused = self._paused, paused
        self._runner.halt(
            "cleaning was paused",
            where=lambda log: _holds(paused, log) and not _holds(before, log),
        )
        self._wake()

    async def clean_now(
        self,
        log: PartitionLog,
        *,
        despite_pause: bool = False,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> PassReport:
        """Clean a log up to its high watermark now, whatever its dirty ratio.

        Its active segment rolls first, if it holds records. Waits for a pass that is running over
        the log, and for a free thread. `on_start` is told when it has one.

        Raises:
            ValueError: the log is not compacted.
            CleaningPaused: it is paused, and that is to be heeded.
            CleaningAborted: the pool stops, or the log was truncated, deleted or reconfigured.
            SwapRefused, ProtocolError, StorageError, VerificationFailed: as `cleaner.clean.clean`;
                the partition is in quarantine then, as after a pass that nobody asked for.
        """

        def begin() -> tuple[CleaningPlan, RunningPass]:
            self.check_may_clean(log, despite_pause=despite_pause)
            log.roll(self._clock.now_ms())
            return self._claim_on_request(log, Task.CLEAN)

        self.check_may_clean(log, despite_pause=despite_pause)
        return await self._run_on_request(log, begin, on_start, self._run)

    async def dry_run(
        self, log: PartitionLog, *, on_start: Callable[[RunningPass], None] = lambda _: None
    ) -> DryRun:
        """Find out what `clean_now` would do, up to the swap, and change nothing.

        It waits as `clean_now` does, and one rehearsal runs at a time: passes matter more.

        Raises:
            ValueError: the log is not compacted.
            CleaningAborted, ProtocolError, StorageError: as `clean_now`; the partition is not put
                into quarantine for it.
        """

        def begin() -> tuple[CleaningPlan, RunningPass]:
            self.check_may_clean(log, despite_pause=True)
            return self._claim_on_request(log, Task.DRY_RUN)

        self.check_may_clean(log, despite_pause=True)
        async with self._rehearsing:
            return await self._run_on_request(log, begin, on_start, self._rehearse)

    async def digest(
        self,
        log: PartitionLog,
        end_offset: int | None = None,
        *,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> LogDigest:
        """Sum the last records of a log's keys below an offset, by default the last stable one.

        Any log has a digest, compacted or not. It waits, and keeps others off the log, as a rehearsal
        does, and one of both runs at a time.

        Raises:
            ValueError: the offset is not in the log, or not stable.
            CleaningAborted: it was stopped, or the log was truncated, deleted or reconfigured.
            ProtocolError, StorageError, VerificationFailed: as `cleaner.log_digest.log_digest`.
        """

        def begin() -> tuple[int | None, RunningPass]:
            if self._stopping.is_set():
                raise CleaningAborted(STOPS)
            return end_offset, self._runner.claim(log, Task.DIGEST, Reason.REQUESTED)

        async with self._rehearsing:
            return await self._run_on_request(log, begin, on_start, self._digest)

    def lease(self, log: PartitionLog) -> tuple[CleaningPlan, RunningPass]:
        """Plan a pass for others to execute; nobody else has the log until `end_lease`.

        As `clean_now` it rolls the active segment and cleans up to the high watermark.

        Raises:
            ValueError, CleaningPaused, CleaningAborted: as `clean_now`.
            LogBusy: a pass, a rehearsal or another lease has it.
        """
        self.check_may_clean(log)
        if (running := self._runner.running.get(log.topic_partition)) is not None:
            raise LogBusy(f"{log.topic_partition} is taken: {running.task.value} runs over it")
        log.roll(self._clock.now_ms())
        return self._claim_on_request(log, Task.LEASE)

    async def commit_lease(
        self, running: RunningPass, plan: CleaningPlan, folder: str, result: RemoteResult
    ) -> PassReport:
        """Commit what others made of a lease's plan, and account for it as for a pass.

        What is wrong with it is theirs: the partition does not rest for it.

        Raises:
            ResultRefused, CleaningAborted, SwapRefused, StorageError: as `cleaner.remote_commit`.
        """
        partition = running.log.topic_partition
        async with self._runner.slots:
            self._probe.pass_started(partition.topic, partition.partition)
            try:
                report = await self._runner.commit(running, plan, folder, result)
            except BaseException as error:
                self._ends.stopped(partition, running.stopped_because or str(error) or repr(error))
                raise
        self._lookout.completed(plan, report)
        self._ends.completed(partition, report)
        return report

    def end_lease(self, running: RunningPass) -> None:
        """Let others have the log again, the workers first."""
        self._runner.release(running)
        self._wake()

    async def find_key(
        self,
        log: PartitionLog,
        key: bytes,
        *,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> KeyHistory:
        """Find what is on disk of a key, in a thread of its own that pays the throttle like a pass.

        Raises:
            CleaningAborted: it was stopped, or the log was truncated, deleted or reconfigured.
            ProtocolError, StorageError: the log is damaged, or cannot be read.
        """
        return await self._runner.find_key(log, key, on_start)

    async def _run_on_request(
        self,
        log: PartitionLog,
        begin: Callable[[], tuple[Plan, RunningPass]],
        on_start: Callable[[RunningPass], None],
        run: Callable[[PartitionLog, Plan, RunningPass], Awaitable[T]],
    ) -> T:
        """Wait for the log and for a thread, then begin and run."""
        while True:
            await self._runner.until_idle(log.topic_partition)
            async with self._runner.slots:
                if log.topic_partition not in self._runner.running:
                    plan, running = begin()
                    on_start(running)
                    return await run(log, plan, running)

    def _claim_on_request(self, log: PartitionLog, task: Task) -> tuple[CleaningPlan, RunningPass]:
        plan = self._lookout.plan(log, requested=True, as_if_rolled=task is Task.DRY_RUN)
        assert plan is not None, "a compacted log that somebody asked for is eligible"
        return plan, self._runner.claim(log, task, plan.reason)

    def check_may_clean(self, log: PartitionLog, *, despite_pause: bool = False) -> None:
        """Raises `ValueError`, `CleaningPaused` or `CleaningAborted` as `clean_now`, which asks this."""
        if not log.config.is_compacted:
            raise ValueError(f"{log.topic_partition} is not compacted")
        scope = _scope_of(self._paused, log)
        if scope is not None and not despite_pause:
            raise CleaningPaused(f"cleaning of {log.topic_partition} is paused ({scope.value})")
        if self._stopping.is_set():
            raise CleaningAborted(STOPS)

    @property
    def dead_workers(self) -> int:
        """Workers that ended though nobody asked them to: none, unless we are mistaken. Any thread."""
        return 0 if self._stopping.is_set() else sum(each.done() for each in self._workers.values())

    def status(self) -> PoolStatus:
        """What runs, what rests and why, and how each partition's last pass went."""
        return PoolStatus(
            running=tuple(running.status() for running in self._runner.running.values()),
            quarantined=self._ends.quarantined,
            last_reports=dict(self._ends.last_reports),
            paused=self._paused,
            threads=self._runner.threads,
            rates=self._runner.throttle.rates,
            guard_rate=self._runner.throttle.guard_rate,
            is_lifted=self._runner.throttle.is_lifted,
        )

    def assess(self, log: PartitionLog) -> Assessment:
        """Where a log stands, by what a look of the workers would find now."""
        return self._lookout.assess(log)

    async def queue(self) -> list[Candidate]:
        """The eligible logs that wait for a worker, the most urgent first."""
        logs = [log for log in self._logs() if log.config.is_compacted]
        waiting = [
            candidate
            async for log in _in_turns(logs)
            if self._may_run(log) and (candidate := self._lookout.candidate(log))
        ]
        return sorted(waiting, key=urgency, reverse=True)

    # ---------------------------------------------------------------- a worker

    def _hire(self) -> None:
        """Have a worker for each thread; one that is more than that leaves by itself."""
        for number in range(self._runner.threads):
            if number not in self._workers:
                self._workers[number] = asyncio.get_running_loop().create_task(
                    self._work(number), name=f"cleaner-{number}"
                )

    async def _work(self, number: int) -> None:
        while not self._stopping.is_set():
            if number >= self._runner.threads:
                del self._workers[number]
                return
            try:
                has_cleaned = await self._clean_most_urgent()
            except Exception as error:  # noqa: BLE001 - a worker outlives whatever is wrong
                _log.exception("a cleaner worker failed; it goes on")
                self._probe.worker_failed(repr(error))
                has_cleaned = False
            if not has_cleaned:
                await self._rest()

    async def _rest(self) -> None:
        """Wait until a log may be eligible, for a back-off at most."""
        seconds = min(
            self._runner.settings.backoff_ms / 1000, self._next_look_at - self._clock.monotonic()
        )
        if self._stopping.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._waking.wait()

    def _wake(self) -> None:
        """Let resting workers look again now."""
        waking, self._waking = self._waking, asyncio.Event()
        waking.set()

    async def _clean_most_urgent(self) -> bool:
        """Pick a log and clean it; False if there was none, or its pass came to nothing."""
        try:
            async with self._runner.slots:
                async with self._picking:
                    picked = await self._pick()
                    if picked is None or self._stopping.is_set():
                        return False
                    log, plan = picked
                    running = self._runner.claim(log, Task.CLEAN, plan.reason)
                await self._run(log, plan, running)
        except (CleaningAborted, ProtocolError, StorageError, VerificationFailed):
            # Told and accounted for where it happened. What made it end may still be there.
            self._next_look_at = math.inf
            return False
        return True

    # ---------------------------------------------------------------- picking

    async def _pick(self) -> tuple[PartitionLog, CleaningPlan] | None:
        """The most urgent eligible log that neither runs nor rests, with the plan for it."""
        logs = {log.topic_partition: log for log in self._logs() if log.config.is_compacted}
        self._ends.forget_all_but(logs)
        self._lookout.forget_all_but(logs)
        look = self._lookout.begin()
        async for log in _in_turns(logs.values()):
            self._lookout.look_at(log, look, may_run=self._may_run(log))
        self._probe.picked(look)
        self._next_look_at = self._next_moment(look)
        if look.best is None or not self._may_run(look.best):
            return None
        plan = self._lookout.plan(look.best)
        return (look.best, plan) if plan else None

    def _may_run(self, log: PartitionLog) -> bool:
        partition = log.topic_partition
        return (
            partition not in self._runner.running
            and not _holds(self._paused, log)
            and not self._ends.is_resting(partition)
        )

    def _next_moment(self, look: Look) -> float:
        """When a log becomes eligible or may be tried again, in monotonic seconds."""
        # A millisecond late rather than early, and then once more.
        woken_at = self._clock.monotonic() + (look.wake_ms - look.now_ms + 1) / 1000
        return min(woken_at, self._ends.next_retry_at())

    # ---------------------------------------------------------------- running

    async def _run(self, log: PartitionLog, plan: CleaningPlan, running: RunningPass) -> PassReport:
        """Run a claimed pass in a thread and account for how it ended; raises what it raised."""
        partition = log.topic_partition
        self._probe.pass_started(partition.topic, partition.partition)
        try:
            report = await self._runner.clean(running, plan)
        except (CleaningAborted, SwapRefused, SegmentRemoved, LogOffline) as reason:
            self._ends.stopped(partition, running.stopped_because or str(reason))
            raise
        except (ProtocolError, StorageError, VerificationFailed) as error:
            self._ends.failed(partition, error, reason_of(error))
            raise
        except Exception as error:
            _log.exception("%s: cleaning failed", partition)
            self._ends.failed(partition, error, repr(error))
            raise
        else:
            self._lookout.completed(plan, report)
            self._ends.completed(partition, report)
            return report
        finally:
            self._runner.release(running)

    async def _rehearse(
        self, log: PartitionLog, plan: CleaningPlan, running: RunningPass
    ) -> DryRun:
        """Run a claimed rehearsal; raises what it raised."""
        try:
            past = tuple(self._ends.last_reports.values())
            return await self._runner.rehearse(running, plan, past=past)
        finally:
            self._runner.release(running)
            # Workers have passed the log over meanwhile.
            self._wake()

    async def _digest(
        self, _log: PartitionLog, end_offset: int | None, running: RunningPass
    ) -> LogDigest:
        """Run a claimed digest; raises what it raised."""
        try:
            return await self._runner.digest(running, end_offset)
        finally:
            self._runner.release(running)
            self._wake()


async def _in_turns(logs: Iterable[PartitionLog]) -> AsyncIterator[PartitionLog]:
    """The logs that are in service; the loop gets a turn now and then."""
    looked_at = 0
    for log in logs:
        if log.offline_reason is None:
            yield log
        looked_at += LOG_IN_SEGMENTS + len(log.segments)
        if looked_at >= SEGMENTS_A_TURN:
            looked_at = 0
            await asyncio.sleep(0)


def _scope_of(paused: Paused, log: PartitionLog) -> PauseScope | None:
    return paused.scope_of(log.topic_id, log.topic_partition.partition)


def _holds(paused: Paused, log: PartitionLog) -> bool:
    return _scope_of(paused, log) is not None

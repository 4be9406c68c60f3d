"""The pool of cleaning workers: decides which log is cleaned when, in the background and on request.

    each worker:   look at all logs -> clean the most urgent one in a thread -> look again at once;
                   if no log is eligible, look again when one may become eligible, at the latest
                   after the back-off

A pass runs in a thread of a dedicated executor at low priority, one pass per log at a time. An exception
ends only the pass that raised it: the partition goes into quarantine, with the reason, and is tried
again later.

    runner.py       owns the threads, the slots for them, and the claims of tasks on logs
    workers.py      owns the background tasks, and how long they sleep
    lookout.py      owns what is known about the logs that wait
    pass_ends.py    owns what is known about past passes: last reports, quarantine

All state belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from cleaner.expiry.sweep import Append, SweepPlan
from cleaner.inspect.dry_run import DryRun
from cleaner.inspect.key_search import KeyHistory
from cleaner.inspect.key_traces import LEAST_OFFSET, KeyTraces
from cleaner.inspect.policy_preview import PolicyPreview, without_pass
from cleaner.pacing.clock import Clock
from cleaner.pacing.meter import CleaningAborted
from cleaner.pacing.paused import NOTHING_PAUSED, CleaningPaused, Paused, PauseScope
from cleaner.pacing.probe import CleanerProbe
from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import Throttle
from cleaner.passes.certificate import Ledger
from cleaner.passes.clean import PlanOutdated
from cleaner.passes.verify_pass import VerificationFailed
from cleaner.pool.index_ahead import IndexAhead
from cleaner.pool.inspection import Inspection
from cleaner.pool.lookout import Lookout
from cleaner.pool.pass_ends import PassEnds
from cleaner.pool.runner import CANCELLED, NO_LEDGERS, Runner, RunningPass
from cleaner.pool.status import PoolStatus, RunningStatus, Task
from cleaner.pool.unkeyed_mover import UnkeyedTopics
from cleaner.pool.watchdog import Watchdog
from cleaner.pool.workers import Workers
from cleaner.remote.plan import RemoteResult
from cleaner.remote.refusal import why_not_remote
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.expiry_report import ExpiryFacts, ExpiryReport
from cleaner.rules.hold import HoldOf, no_hold
from cleaner.rules.look import Look
from cleaner.rules.pick import Assessment, Reason, Remainder
from cleaner.rules.policy_change import policy_change
from cleaner.rules.reclaimable import Reclaimable
from cleaner.rules.report import PassReport
from cleaner.rules.urgency import Candidate
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.files.errors import LogOffline, NoSpace, SegmentRemoved, StorageError
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleaningView
from storage.log.log import PartitionLog
from storage.threads import any_thread, loop_thread

FAILED_SWEEP_REST_SECONDS = 600.0
"""How long a log is not swept after a sweep that has met damage, or has failed otherwise."""

T = TypeVar("T")
Plan = TypeVar("Plan")


class LogBusy(Exception):
    """Another task has claimed the log."""


@loop_thread
class CleanerPool:
    """Cleans compacted logs in the background, and on request."""

    __slots__ = (
        "_ahead", "_append", "_clock", "_ends", "_has_swept", "_hold_of", "_logs", "_longest_wait_ms",
        "_lookout", "_paused", "_picking",
        "_probe",
        "_rehearsing", "_runner", "_watchdog", "_workers",
    )  # fmt: skip

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        settings: CleanerSettings,
        *,
        clock: Clock,
        probe: CleanerProbe,
        hold_of: HoldOf = no_hold,
        ledgers: Mapping[str, Ledger] = NO_LEDGERS,
        append: Append | None = None,
        unkeyed: UnkeyedTopics | None = None,
    ) -> None:
        """
        Args:
            logs: returns all current logs, compacted or not; called in any thread.
            append: appends a batch of tombstones; without it no value expires.
            hold_of: returns which tombstones of a log must stay. A hold that appears or moves back must
                raise the log's generation.
            ledgers: get the certificates of passes, by the ids of the log directories.
            unkeyed: the topics to which records without a key are moved; None: such records stay.
        """
        # Constant after construction.
        self._logs = logs
        self._clock = clock
        self._probe = probe
        self._runner = Runner(settings, clock=clock, probe=probe, ledgers=ledgers, unkeyed=unkeyed)
        self._workers = Workers(self._clean_most_urgent, self._runner, clock=clock, probe=probe)
        self._watchdog = Watchdog(self._runner, probe)
        self._ends = PassEnds(settings, clock=clock, probe=probe)
        self._lookout = Lookout(clock, hold_of)
        self._apply(settings)
        self._ahead = IndexAhead(
            self._runner,
            self._lookout.counts,
            clock=clock,
            may_run=self._may_run,
            wake=self._workers.wake,
        )
        self._hold_of = hold_of
        self._append = append
        self._picking = asyncio.Lock()
        self._rehearsing = asyncio.Lock()
        # State.
        self._paused = NOTHING_PAUSED
        self._longest_wait_ms = 0
        """How long a log had waited at most that the last look found."""
        self._has_swept = False
        """Whether the last pick was a sweep for expired values; where both wait, they take turns with
        passes."""

    # ---------------------------------------------------------------- called by the broker

    def start(self) -> None:
        """Start cleaning in the background, with one worker per thread."""
        assert not self._workers.have_started
        self._workers.start()
        self._watchdog.start()

    async def stop(self) -> None:
        """Stop every pass within a chunk, wait until they have ended, and start no more."""
        self._runner.request_stop()
        await self._workers.until_ended()
        await self._ahead.give_way()
        await self._runner.drain()
        self._watchdog.stop()

    def configure(self, settings: CleanerSettings) -> None:
        """Apply new settings: the I/O budgets at once, also to running passes, the rest to later passes.

        Fewer threads do not stop a pass; surplus workers end once they have no pass to run.
        """
        self._runner.configure(settings)
        self._apply(settings)
        if not self._lookout.counts.is_on:
            self._ahead.halt("it was switched off")
        if self._workers.have_started:
            self._workers.start()
        self._workers.wake()

    def _apply(self, settings: CleanerSettings) -> None:
        self._lookout.is_by_benefit = settings.is_by_benefit
        is_on = settings.indexes_ahead and settings.keeps_key_sidecars
        self._lookout.counts.switch(is_on=is_on)

    def set_guard_rate(self, bytes_per_second: float) -> None:
        """Limit reads and writes together to the rate that the latency guard allows."""
        self._runner.throttle.set_guard_rate(bytes_per_second)

    def short_of_space(self, directory_ids: frozenset[str]) -> None:
        """Set the log directories whose disks are nearly full; an empty set returns to normal cleaning.

        Their logs come first, by the bytes that a pass frees, and I/O budgets are lifted for all passes.
        """
        self._lookout.short_of_space = directory_ids
        self._runner.throttle.lift(bool(directory_ids))
        self._workers.wake()

    def pause(self, paused: Paused) -> None:
        """Set what is paused; passes over newly paused logs stop within a chunk."""
        before, self._paused = self._paused, paused
        self._runner.halt(
            "cleaning was paused",
            where=lambda log: _is_paused(paused, log) and not _is_paused(before, log),
        )
        self._workers.wake()

    def cancel(self, partitions: Container[TopicPartition]) -> list[RunningStatus]:
        """Stop the tasks over these partitions, within a chunk. Returns them.

        What a pass has swapped stays. The workers take such a log again after a rest.
        """
        running = [
            each for each in self._runner.running.values() if each.log.topic_partition in partitions
        ]
        stopped = [each.status() for each in running]
        for each in running:
            self._ends.cancelled(each.log.topic_partition)
            each.halt(CANCELLED)
        return stopped

    async def clean_now(
        self,
        log: PartitionLog,
        *,
        despite_pause: bool = False,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> PassReport:
        """Clean a log up to its high watermark now, at any dirty ratio.

        The active segment rolls first, if it holds records. Waits for a pass that is running over the
        log, and for a free thread; then calls `on_start`.

        Raises:
            ValueError: the log is not compacted.
            CleaningPaused: its cleaning is paused, unless `despite_pause`.
            CleaningAborted: the pool stops, or the log was truncated, deleted or reconfigured.
            SwapRefused, ProtocolError, StorageError, VerificationFailed: as
                `cleaner.passes.clean.clean`; the partition goes into quarantine, as after a background
                pass.
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
        """Report what `clean_now` would do, up to the swap, without changing anything.

        Waits as `clean_now` does. Only one rehearsal runs at a time, so that passes find a free thread.

        Raises:
            ValueError: the log is not compacted.
            CleaningAborted, ProtocolError, StorageError: as `clean_now`, but without quarantine.
        """

        def begin() -> tuple[CleaningPlan, RunningPass]:
            self.check_may_clean(log, despite_pause=True)
            return self._claim_on_request(log, Task.DRY_RUN)

        self.check_may_clean(log, despite_pause=True)
        async with self._rehearsing:
            return await self._run_on_request(log, begin, on_start, self._rehearse)

    async def preview(
        self,
        log: PartitionLog,
        config: LogConfig,
        *,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> PolicyPreview:
        """Report what retention would delete from a log, and a pass drop, if it had these settings.

        A change that does not concern compaction is answered at once. For one that does, a rehearsal
        waits and runs as `dry_run` does; the log need not be compacted now.

        Raises:
            CleaningAborted, ProtocolError, StorageError: as `dry_run`.
        """
        change = policy_change(log.config, config)
        preview = without_pass(log, config, change, now_ms=self._clock.now_ms())
        start_offset = preview.deleted.log_start_offset
        if not change.compacts or start_offset >= log.log_end_offset:
            return preview

        def begin() -> tuple[CleaningPlan, RunningPass]:
            self._runner.check_not_stopping()
            plan = self._lookout.plan_as_configured(log, config, start_offset)
            return plan, self._runner.claim(log, Task.DRY_RUN, plan.reason)

        async with self._rehearsing:
            rehearsal = await self._run_on_request(log, begin, on_start, self._rehearse)
        return replace(preview, dry_run=rehearsal)

    async def inspect(
        self,
        log: PartitionLog,
        inspection: Inspection[T],
        *,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> T:
        """Read a log with work that changes nothing, and return its result.

        Works for any log, compacted or not. Waits and claims the log as a rehearsal does; only one
        rehearsal or inspection runs at a time.

        Raises:
            CleaningAborted: it was stopped, or the log was truncated, deleted or reconfigured.
            What the inspection raises.
        """

        def begin() -> tuple[Inspection[T], RunningPass]:
            self._runner.check_not_stopping()
            return inspection, self._runner.claim(log, inspection.task, Reason.REQUESTED)

        async with self._rehearsing:
            return await self._run_on_request(log, begin, on_start, self._inspect)

    def lease(self, log: PartitionLog) -> tuple[CleaningPlan, RunningPass]:
        """Plan a pass for another process, and claim the log for it until `end_lease`.

        As with `clean_now`, the active segment rolls and the pass goes up to the high watermark.

        Raises:
            ValueError: as `clean_now`; or only the broker's own cleaner can clean it (`why_not_remote`).
            CleaningPaused, CleaningAborted: as `clean_now`.
            LogBusy: a pass, a rehearsal or another lease has claimed the log.
        """
        self.check_may_clean(log)
        partition, fences = log.topic_partition, self._lookout.assess(log).known_fences
        reason = why_not_remote(partition, log.config, has_history=log.has_history, fences=fences)
        if reason is not None:
            raise ValueError(reason)
        if (running := self._runner.running.get(log.topic_partition)) is not None:
            raise LogBusy(f"{log.topic_partition} is busy with another task: {running.task.value}")
        log.roll(self._clock.now_ms())
        return self._claim_on_request(log, Task.LEASE)

    async def commit_lease(
        self, running: RunningPass, plan: CleaningPlan, folder: str, result: RemoteResult
    ) -> PassReport:
        """Commit the result of a lease, and account for it as for a local pass.

        Errors in the result are the executor's fault, so they do not put the partition into quarantine.

        Raises:
            ResultRefused, CleaningAborted, SwapRefused, StorageError: as `commit` in
                `cleaner/remote/commit.py`.
        """
        partition = running.log.topic_partition
        async with self._runner.slots:
            await self._ahead.give_way()
            self._probe.pass_started(partition.topic, partition.partition)
            try:
                report = await self._runner.commit(running, plan, folder, result)
            except BaseException as error:
                self._ends.stopped(partition, running.stopped_because or str(error) or repr(error))
                raise
        self._lookout.completed(running.log, plan, report)
        self._ends.completed(partition, report)
        return report

    def end_lease(self, running: RunningPass) -> None:
        """Release the log and wake the workers."""
        self._release(running)

    async def find_key(
        self,
        log: PartitionLog,
        key: bytes,
        *,
        on_start: Callable[[RunningPass], None] = lambda _: None,
    ) -> KeyHistory:
        """Find the records of a key on disk, in a separate thread that is throttled like a pass.

        Raises:
            CleaningAborted: the search was stopped, or the log was truncated, deleted or reconfigured.
            ProtocolError, StorageError: the log is damaged, or cannot be read.
        """
        return await self._runner.find_key(log, key, self._hold_of(log), on_start)

    async def trace_keys(
        self,
        log: PartitionLog,
        hashes: Collection[bytes],
        *,
        start_offset: Offset = LEAST_OFFSET,
        end_offset: Offset = OFFSET_MAX,
        trusts_sidecars: bool,
        on_start: Callable[[RunningPass], None] = lambda _: None,
        before: Callable[[CleaningView], None] = lambda _: None,
    ) -> KeyTraces:
        """Look for the records of several keys, in the thread of the searches.

        Args:
            hashes: of the keys, under the log's hash key.
            trusts_sidecars: False reads every record.
            before: called in that thread with the view that is read next, each time that one is taken.

        Raises:
            CleaningAborted: the search was stopped, or the log was truncated, deleted or reconfigured.
            ProtocolError, StorageError: the log is damaged, or cannot be read.
        """
        return await self._runner.trace_keys(
            log,
            hashes,
            start_offset,
            end_offset,
            on_start,
            before,
            trusts_sidecars=trusts_sidecars,
        )

    async def _run_on_request(
        self,
        log: PartitionLog,
        begin: Callable[[], tuple[Plan, RunningPass]],
        on_start: Callable[[RunningPass], None],
        run: Callable[[PartitionLog, Plan, RunningPass], Awaitable[T]],
    ) -> T:
        """Wait for the log and for a thread, then call `begin` and `run`."""
        while True:
            await self._ahead.give_way()
            await self._runner.until_idle(log.topic_partition)
            async with self._runner.slots:
                await self._ahead.give_way()
                if log.topic_partition not in self._runner.running:
                    plan, running = begin()
                    on_start(running)
                    return await run(log, plan, running)

    def _claim_on_request(self, log: PartitionLog, task: Task) -> tuple[CleaningPlan, RunningPass]:
        plan = self._lookout.plan(log, requested=True, as_if_rolled=task is Task.DRY_RUN)
        assert plan is not None, "a compacted log is always eligible for a requested pass"
        return plan, self._runner.claim(log, task, plan.reason)

    def check_may_clean(self, log: PartitionLog, *, despite_pause: bool = False) -> None:
        """Raises `ValueError`, `CleaningPaused` or `CleaningAborted` if `clean_now` would do so."""
        if not log.config.is_compacted:
            raise ValueError(f"{log.topic_partition} is not compacted")
        scope = _scope_of(self._paused, log)
        if scope is not None and not despite_pause:
            raise CleaningPaused(f"cleaning of {log.topic_partition} is paused ({scope.value})")
        self._runner.check_not_stopping()

    @property
    def throttle(self) -> Throttle:
        """The I/O budgets of passes, for other work that should stay within them."""
        return self._runner.throttle

    @property
    @any_thread
    def dead_workers(self) -> int:
        """Workers that ended while the pool is running; above 0 only after a bug."""
        return self._workers.dead

    @property
    def late_ms(self) -> int:
        """How long at most a log has waited for a pass, or a pass runs."""
        now_running = (
            int(each.progress.snapshot().seconds * 1000)
            for each in self._runner.running.values()
            if each.task is Task.CLEAN
        )
        return max(self._longest_wait_ms, *now_running, 0)

    @property
    @any_thread
    def stalled_tasks(self) -> int:
        """Tasks that have made no progress for `log.cleaner.stalled.ms`."""
        return len(self._watchdog.stalled)

    def status(self) -> PoolStatus:
        """Returns what runs, which partitions rest and why, and each partition's last report."""
        return PoolStatus(
            running=tuple(running.status() for running in self._runner.running.values()),
            quarantined=self._ends.quarantined,
            last_reports=dict(self._ends.last_reports),
            paused=self._paused,
            threads=self._runner.threads,
            rates=self._runner.throttle.rates,
            guard_rate=self._runner.throttle.guard_rate,
            stalled_ms=self._runner.settings.stalled_ms,
            is_lifted=self._runner.throttle.is_lifted,
            expiries=self._lookout.expiries.all_facts(),
            reclaimable=self._lookout.counts.estimates(),
        )

    def assess(self, log: PartitionLog) -> Assessment:
        """Returns the assessment of a log that a worker would make now."""
        return self._lookout.assess(log)

    def expiry_of(self, log: PartitionLog) -> ExpiryFacts | None:
        """Returns what is known of when a log's values expire; None if they do not."""
        return self._lookout.expiries.facts(log) if log.config.expires_values else None

    @any_thread
    def reclaimable_of(self, log: PartitionLog) -> Reclaimable | None:
        """Returns how much a pass over a log would free; None if its keys were not counted."""
        return self._lookout.counts.estimate(log)

    async def make_way(self) -> None:
        """Let no log be claimed for the counting of its keys when this returns."""
        await self._ahead.give_way()

    @any_thread
    def remainder_above_fences(self, log: PartitionLog) -> Remainder | None:
        """Returns what the last pass has left of a log with fences; None for other logs."""
        return self._lookout.remainder_above_fences(log)

    async def queue(self) -> list[Candidate]:
        """Returns the eligible logs that wait for a worker, the most urgent first."""
        logs = await self._runner.compacted(self._logs)
        return await self._lookout.queue(logs.values(), may_run=self._may_run)

    # ---------------------------------------------------------------- in the background

    async def _clean_most_urgent(self) -> float | None:
        """Clean the most urgent log. If it did not, returns when to look again, in monotonic seconds."""
        try:
            async with self._runner.slots:
                async with self._picking:
                    picked = await self._pick()
                    if isinstance(picked, float):
                        return picked
                    if self._runner.is_stopping:
                        return math.inf
                    log, plan = picked
                    if isinstance(plan, SweepPlan):
                        running = self._runner.claim(log, Task.EXPIRE, Reason.EXPIRY_DUE)
                    else:
                        running = self._runner.claim(log, Task.CLEAN, plan.reason)
                if isinstance(plan, SweepPlan):
                    await self._sweep(log, plan, running)
                else:
                    await self._run(log, plan, running)
        except (CleaningAborted, ProtocolError, StorageError, VerificationFailed):
            # `_run` or `_sweep` has logged and counted it. The cause may persist, so do not look again
            # at once.
            return math.inf
        return None

    async def _pick(self) -> tuple[PartitionLog, CleaningPlan | SweepPlan] | float:
        """Returns the most urgent log that is eligible and may run, with its plan, or one that is due
        for a sweep; if there is none, when to look again."""
        logs = await self._runner.compacted(self._logs)
        self._ends.forget_all_but(logs)
        self._lookout.forget_all_but(logs)
        look = await self._lookout.look_at_all(logs.values(), may_run=self._may_run)
        self._probe.picked(look)
        self._longest_wait_ms = look.longest_wait_ms
        next_look_at = self._next_moment(look)
        if look.best is None and look.sweep is None:
            self._ahead.begin(look.to_count)
        else:
            await self._ahead.give_way()
        plan = None
        if look.best is not None and self._may_run(look.best):
            plan = self._lookout.plan(look.best)
        if self._is_turn_to_sweep(look, has_plan=plan is not None):
            assert look.sweep is not None
            self._has_swept = True
            return look.sweep, self._lookout.plan_sweep(look.sweep)
        self._has_swept = False
        if look.best is None or plan is None:
            return next_look_at
        return look.best, plan

    def _is_turn_to_sweep(self, look: Look, *, has_plan: bool) -> bool:
        """Returns whether a sweep goes first: passes and sweeps take turns."""
        if self._append is None or look.sweep is None or not self._may_run(look.sweep):
            return False
        return not (has_plan and self._has_swept)

    def _may_run(self, log: PartitionLog) -> bool:
        partition = log.topic_partition
        running = self._runner.running.get(partition)
        return (
            (running is None or running.task is Task.INDEX)
            and not _is_paused(self._paused, log)
            and not self._ends.is_resting(partition)
        )

    def _next_moment(self, look: Look) -> float:
        """Returns when a log becomes eligible or may be tried again, in monotonic seconds."""
        # One millisecond late rather than early, which would cost a second look.
        woken_at = self._clock.monotonic() + (look.wake_ms - look.now_ms + 1) / 1000
        return min(woken_at, self._ends.next_retry_at())

    # ---------------------------------------------------------------- running

    async def _run(self, log: PartitionLog, plan: CleaningPlan, running: RunningPass) -> PassReport:
        """Run a claimed pass in a thread and record how it ended. Raises what the pass raises."""
        partition = log.topic_partition
        self._probe.pass_started(partition.topic, partition.partition)
        try:
            with self._ends.recorded(running):
                plan, report = await self._clean(log, plan, running)
            self._lookout.completed(log, plan, report)
            self._ends.completed(partition, report)
            return report
        finally:
            self._runner.release(running)

    async def _sweep(
        self, log: PartitionLog, plan: SweepPlan, running: RunningPass
    ) -> ExpiryReport:
        """Run a claimed sweep and record how it ended. Raises what it raises."""
        assert self._append is not None
        began, report, rest_s = self._clock.monotonic(), None, 0.0
        try:
            with self._ends.sweep_recorded(running):
                report = await self._runner.expire(running, plan, self._append)
            self._lookout.expiries.completed(log, plan, report)
            self._ends.swept(report)
        except (CleaningAborted, SegmentRemoved, LogOffline, NoSpace):
            raise
        except Exception:
            rest_s = FAILED_SWEEP_REST_SECONDS
            raise
        else:
            return report
        finally:
            if report is None:
                seconds = self._clock.monotonic() - began
                self._lookout.expiries.stopped(log, seconds, at_least_s=rest_s)
            self._runner.release(running)

    async def _clean(
        self, log: PartitionLog, plan: CleaningPlan, running: RunningPass
    ) -> tuple[CleaningPlan, PassReport]:
        """Run a pass. If it meets damage after a swap, run another one for the rest. Returns the last
        plan and its report. Raises what the pass raises."""
        while True:
            try:
                return plan, await self._runner.clean(running, plan)
            except PlanOutdated:
                # Each damaged segment and sidecar is met once, so this ends.
                requested = plan.reason is Reason.REQUESTED
                again = self._lookout.plan(log, requested=requested)
                if again is None:
                    raise
                plan = again

    async def _rehearse(
        self, log: PartitionLog, plan: CleaningPlan, running: RunningPass
    ) -> DryRun:
        """Run a claimed rehearsal. Raises what it raises."""
        try:
            past = tuple(self._ends.last_reports.values())
            return await self._runner.rehearse(running, plan, past=past)
        finally:
            self._release(running)

    async def _inspect(
        self, _log: PartitionLog, inspection: Inspection[T], running: RunningPass
    ) -> T:
        """Run a claimed inspection. Raises what it raises."""
        try:
            return await self._runner.inspect(running, inspection)
        finally:
            self._release(running)

    def _release(self, running: RunningPass) -> None:
        """Release a log that workers have skipped, and let them look again."""
        self._runner.release(running)
        self._workers.wake()


def _scope_of(paused: Paused, log: PartitionLog) -> PauseScope | None:
    return paused.scope_of(log.topic_id, log.topic_partition.partition)


def _is_paused(paused: Paused, log: PartitionLog) -> bool:
    return _scope_of(paused, log) is not None

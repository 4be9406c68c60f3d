"""Group commit: one round of syncs makes all earlier appends durable.

    append -> dirty -> round 1 (fdatasync of all dirty logs, off the loop) --> high watermarks move,
    append -> dirty ---- waits for round 2 ----------------------------------> waiters are answered

Threads that never hold the interpreter lock run a round (`storage/files/sync_threads.pyx`), or a Python
worker thread where those cannot (`storage/log/sync_rounds.py` decides).

With `flush.on.acks.all=true`, or with `flush.messages=1`, every append is followed by a round, and the
high watermark of a log is the end of what was synced. The round starts at once if an answer, a parked
fetch of the log or a truncation waits for it, otherwise after `LINGER_SECONDS`: where nobody waits,
appends with acks=1 share their syncs. Without that setting the high watermark is the log end
offset immediately: a crash of the machine may lose acknowledged records, as in Kafka. A round then
starts only when `flush.messages` or `flush.ms` is due, and no producer waits for it. See "A produce
request, top to bottom" in ARCHITECTURE.md.

A failed sync is final: the log's directory goes offline (`storage/log/sync_rounds.py`), the waiters get
False, and the records that they waited for are never acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from metrics.server_probe import ServerProbe
from protocol.wire.numbers import Offset
from server.durability.fetch_waiters import FetchWaiters
from server.runtime.tasks import call_later, call_soon, guarded, report_failure
from storage.log.log import PartitionLog
from storage.log.sync_rounds import Synced, SyncRounds
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.durability.group_commit")

LINGER_SECONDS = 0.005
"""How long an append that nobody waits for may wait for more."""
RETRY_SECONDS = 1.0
"""How long the next round waits after one that failed unexpectedly, unless a request waits."""


@loop_thread
class GroupCommit:
    """Starts rounds of syncs, which run in other threads, and advances high watermarks.

    Only this class advances the high watermark of a log in service. Opening a log sets it, and a
    truncation lowers it.
    """

    __slots__ = (
        "_fetch_waiters",
        "_flush_on_acks_all",
        "_idle",
        "_is_listening",
        "_is_started",
        "_is_urgent",
        "_linger",
        "_loop",
        "_probe",
        "_resting",
        "_round_start_s",
        "_sync_rounds",
        "_waiting",
        "_worker",
        "_worker_rounds",
    )

    def __init__(
        self,
        sync_rounds: SyncRounds,
        fetch_waiters: FetchWaiters,
        *,
        flush_on_acks_all: bool,
        probe: ServerProbe | None = None,
    ) -> None:
        """Create it in the loop that appends."""
        # Constant after construction. To ask for the running loop would cost each request a system call.
        self._loop = asyncio.get_running_loop()
        self._sync_rounds = sync_rounds
        self._fetch_waiters = fetch_waiters
        self._flush_on_acks_all = flush_on_acks_all
        self._probe = probe
        # True makes the worker run one round and then call back on the loop; False ends it. This is a
        # plain thread, because an executor's futures cost more than the fdatasync of a small append.
        self._worker_rounds: SimpleQueue[bool] = SimpleQueue()
        self._worker: threading.Thread | None = None
        # State. While any log is dirty, a round is scheduled or runs; no list in `_waiting` is empty.
        # When the round was started, or else scheduled; None if there is none.
        self._round_start_s: float | None = None
        # False while a round is scheduled that the threads have not begun. If nobody waits for it, a
        # timer starts it.
        self._is_started = True
        self._linger: asyncio.TimerHandle | None = None
        # Whether the appends since the last round must not linger.
        self._is_urgent = False
        self._is_listening = False
        self._idle: asyncio.Future[None] | None = None
        # Resolved at the end of the scheduled round.
        self._resting: list[asyncio.Future[None]] = []
        self._waiting: dict[PartitionLog, list[tuple[int, Callable[[bool], None]]]] = {}

    def appended(self, log: PartitionLog) -> None:
        """Advance the high watermark at once if no sync is required; schedule a round if one is due and
        none runs."""
        if not self._flush_on_acks_all and log.config.flush_messages > 1:
            self._advance(log, log.log_end_offset)
            if not log.is_flush_due():
                return
        self._sync(log)
        if log.config.flush_messages == 1 or self._fetch_waiters.is_watched(log):
            self._hurry()

    def expect_reader(self, log: PartitionLog) -> None:
        """Start the scheduled round now if a fetch of `log`, which is about to wait, waits for it."""
        if log.high_watermark < log.log_end_offset:
            self._hurry()

    def expect_readers(self) -> None:
        """Start the scheduled round now: a fetch of very many logs is about to wait again."""
        self._hurry()

    def flush_if_due(self, log: PartitionLog, now_ms: int) -> None:
        """Sync `log` in the next round if `flush.ms` has passed. The log clock calls this."""
        if log.offline_reason is None and log.is_flush_due(now_ms):
            self._sync(log)

    def _sync(self, log: PartitionLog) -> None:
        self._sync_rounds.mark_dirty(log)
        if self._round_start_s is None:
            self._schedule_round()
        self._check_dirty_logs_have_a_round()

    def _check_dirty_logs_have_a_round(self) -> None:
        assert self._round_start_s is not None or not self._sync_rounds.has_dirty

    def durable(self, log: PartitionLog, offset: int) -> asyncio.Future[bool]:
        """Returns a future that resolves once everything in `log` below `offset` is durable, as
        configured: True, or False if a sync failed or the log is gone.

        Call it right after the append, before awaiting anything. A later call may come after the
        failure of the round, and could then wait for ever.
        """
        future: asyncio.Future[bool] = self._loop.create_future()
        self.when_durable(log, offset, partial(_resolve, future))
        return future

    def when_durable(self, log: PartitionLog, offset: int, then: Callable[[bool], None]) -> None:
        """Call `then` with the result of the future of `durable`, perhaps at once."""
        if log.high_watermark >= offset:
            then(True)
        else:
            self._waiting.setdefault(log, []).append((offset, then))
            self._hurry()

    async def rest(self, log: PartitionLog) -> None:
        """Sync everything in `log`, and wait until no round does so: a truncation or a swap must not
        meet a sync. Nothing may be appended meanwhile.

        A failed sync takes the log offline, as always; nothing is raised.
        """
        if log.offline_reason is None:
            self._sync(log)
        # The running round may be syncing the log, and the next one will.
        for _ in range(2):
            if self._round_start_s is None:
                return
            self._hurry()
            future: asyncio.Future[None] = self._loop.create_future()
            self._resting.append(future)
            await future

    def start_round_now(self) -> None:
        """Start the scheduled round now, because a request waits for it.

        The loop then receives and appends the next requests of the connection while the disk works;
        otherwise the two would take turns. A round that is over is ended first, without waiting until
        the loop has run its ready callbacks.
        """
        if self._sync_rounds.is_round_over:
            self._end_round()
        if self._round_start_s is not None:
            self._start_round()

    def abandon(self, log: PartitionLog) -> None:
        """Resolve the waiters of a deleted or offline log with False, and wake its fetches."""
        for _, then in self._waiting.pop(log, ()):
            _call(then, False)
        self._fetch_waiters.wake(log)

    async def stop(self) -> None:
        """Finish the pending rounds and end the worker. Nothing may be appended afterwards."""
        if self._round_start_s is not None:
            self._idle = self._loop.create_future()
            self._hurry()
            await self._idle
        if self._is_listening:
            self._loop.remove_reader(self._sync_rounds.round_event)
        for log in tuple(self._waiting):
            self.abandon(log)
        if self._worker is not None:
            self._worker_rounds.put(False)
            self._worker.join()
            self._worker = None

    def _schedule_round(self, linger_s: float = LINGER_SECONDS) -> None:
        self._round_start_s = self._loop.time()
        self._is_started = False
        self._linger = call_later(linger_s, "sync round", self._start_round)

    def _hurry(self) -> None:
        """Start the scheduled round soon. If one runs, the next one follows at once."""
        self._is_urgent = self._round_start_s is not None
        if self._linger is not None:
            # Let the ready callbacks run first, so that their appends share the round. If a request
            # waits, `start_round_now` starts it earlier.
            self._end_linger()
            call_soon("sync round", self._start_round)

    def _end_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _start_round(self) -> None:
        self._end_linger()
        if self._is_started:
            return
        self._is_started, self._is_urgent = True, False
        # The metric is about the disk, not about the linger.
        self._round_start_s = self._loop.time()
        if self._start_compiled_round():
            return
        try:
            if self._worker is None:
                self._worker = self._started_worker()
        except RuntimeError as error:  # The system has no thread left.
            report_failure("sync round", error)
            self._complete_round((), is_lost=True)
            return
        self._worker_rounds.put(True)

    def _started_worker(self) -> threading.Thread:
        worker = threading.Thread(target=self._run_rounds, name="sync", daemon=True)
        worker.start()
        return worker

    def _start_compiled_round(self) -> bool:
        """Start the round in the compiled threads. Returns False if the worker has to run it."""
        try:
            has_begun = self._sync_rounds.begin_round()
            if has_begun and not self._is_listening:
                self._is_listening = True
                self._loop.add_reader(self._sync_rounds.round_event, self._on_round_event)
        except Exception as error:  # noqa: BLE001 - the waiters must get a result in any case
            report_failure("sync round", error)
            self._complete_round((), is_lost=True)
            return True
        return has_begun

    def _on_round_event(self) -> None:
        # Read the event before checking the round: if it ends in between, the event fires again.
        with suppress(BlockingIOError):
            os.eventfd_read(self._sync_rounds.round_event)
        if self._sync_rounds.is_round_over:
            self._end_round()

    def _end_round(self) -> None:
        try:
            synced = self._sync_rounds.end_round()
        except Exception as error:  # noqa: BLE001 - the waiters must get a result in any case
            report_failure("sync round", error)
            self._complete_round((), is_lost=True)
            return
        self._complete_round(synced, is_lost=False)

    @any_thread
    def _run_rounds(self) -> None:
        """Run the requested rounds in the worker thread, and report each to the loop."""
        while self._worker_rounds.get():
            synced: tuple[Synced, ...] = ()
            is_lost = False
            try:
                synced = self._sync_rounds.sync_round()
            except Exception:  # noqa: BLE001 - the waiters must get a result in any case
                _log.exception("a sync round failed unexpectedly")
                is_lost = True
            self._loop.call_soon_threadsafe(self._complete_round, synced, is_lost)

    def _complete_round(self, round_: tuple[Synced, ...], is_lost: bool) -> None:
        """Start the next round if logs are dirty, then advance the logs that this one has synced.

        Args:
            is_lost: the round failed unexpectedly; all waiters get False.
        """
        assert self._round_start_s is not None
        if self._probe is not None and not is_lost:
            self._probe.sync_round_completed(self._loop.time() - self._round_start_s, len(round_))
        self._round_start_s = None
        is_given_up = is_lost and self._idle is not None  # Each log syncs itself when it closes.
        goes_on = self._sync_rounds.has_dirty and not is_given_up
        if goes_on:
            # After a failure that nobody expects, not at once: it would come again.
            self._schedule_round(RETRY_SECONDS if is_lost else LINGER_SECONDS)
            if (self._is_urgent or self._waiting) and not is_lost:
                self._start_round()
        if not is_given_up:
            self._check_dirty_logs_have_a_round()
        for synced in round_:
            with guarded("sync round"):
                self._advance(synced.log, synced.end_offset)
        for log in [log for log in self._waiting if is_lost or log.offline_reason is not None]:
            self.abandon(log)
        if not (is_lost and goes_on):
            # Otherwise the round that is tried again could meet what they are about to do.
            resting, self._resting = self._resting, []
            for future in resting:
                if not future.done():
                    future.set_result(None)
        if not goes_on and self._idle is not None:
            self._idle.set_result(None)

    def _advance(self, log: PartitionLog, offset: Offset) -> None:
        """Advance a log's high watermark, then resolve its waiters and wake its fetches."""
        log.advance_high_watermark(offset)
        waiting = self._waiting.pop(log, ())
        rest = [(wanted, then) for wanted, then in waiting if wanted > offset]
        if rest:
            self._waiting[log] = rest
        for wanted, then in waiting:
            if wanted <= offset:
                _call(then, True)
        self._fetch_waiters.wake(log)


def _call(then: Callable[[bool], None], is_durable: bool) -> None:
    """Call one waiter back. Its exception must not keep the others waiting."""
    try:
        then(is_durable)
    except Exception as error:  # noqa: BLE001
        report_failure("answer after a sync", error)


def _resolve(future: asyncio.Future[bool], is_durable: bool) -> None:
    if not future.done():
        future.set_result(is_durable)

"""Group commit: one sync serves every append that came before it.

    append -> dirty -> round 1 (fdatasync of all dirty logs, beside the loop) -> high watermarks move,
    append -> dirty ---- waits for round 2 ------------------------------------> waiters are answered

A round is carried out by threads that never hold the interpreter (`storage/sync_threads.pyx`), or, where
that is not enough, by a worker thread (`storage/wal.py` says which).

With `flush.on.acks.all=true`, or where `flush.messages` is 1, any append starts a round if none runs,
and a log's high watermark is what a sync has covered. Otherwise it is the log's end at once, a crash of
the machine may lose what was acknowledged (Kafka's promise), and a round is started when
`flush.messages` or `flush.ms` asks for one; nobody waits for it. See ARCHITECTURE.md, "Produce".

A sync that failed is final: the log's directory goes offline (`storage/wal.py`), the waiters learn
it, and nothing they waited for is ever acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import suppress
from queue import SimpleQueue

from metrics.server_probe import ServerProbe
from server.fetch_waiters import FetchWaiters
from server.tasks import guarded, mistake
from storage.log import PartitionLog
from storage.wal import Synced, Wal

_log = logging.getLogger("server.group_commit")


class GroupCommit:
    """Decides when a log's bytes are durable. Used from the loop's thread; rounds run in a worker.

    Moves every log's high watermark while the log is appended to; nobody else does.
    """

    __slots__ = (
        "_fetch_waiters",
        "_idle",
        "_is_listening",
        "_is_ordered",
        "_orders",
        "_probe",
        "_round_start_s",
        "_syncs",
        "_waiting",
        "_wal",
        "_worker",
    )

    def __init__(
        self,
        wal: Wal,
        fetch_waiters: FetchWaiters,
        *,
        flush_on_acks_all: bool,
        probe: ServerProbe | None = None,
    ) -> None:
        # Constant after construction
        self._wal = wal
        self._fetch_waiters = fetch_waiters
        self._syncs = flush_on_acks_all
        self._probe = probe
        # Each order is one round, answered by a call on that loop; None ends the worker. A thread
        # of our own, because an executor's futures cost more than the fdatasync of a small append.
        self._orders: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        # State: a round runs while anything is dirty; no empty lists of waiters.
        self._round_start_s: float | None = None
        # Whether the disk has been told of it.
        self._is_ordered = True
        self._is_listening = False
        self._idle: asyncio.Future[None] | None = None
        self._waiting: dict[PartitionLog, list[tuple[int, asyncio.Future[bool]]]] = {}

    def appended(self, log: PartitionLog) -> None:
        """Say that `log` has new bytes: start a round if none runs and one is wanted."""
        if not self._syncs and log.config.flush_messages > 1:
            self._advance(log, log.log_end_offset)
            if not log.is_flush_due():
                return
        self._sync(log)

    def flush_if_due(self, log: PartitionLog, now_ms: int) -> None:
        """Have `log` synced if flush.ms asks for it; called by a clock."""
        if log.offline_reason is None and log.is_flush_due(now_ms):
            self._sync(log)

    def _sync(self, log: PartitionLog) -> None:
        self._wal.mark_dirty(log)
        if self._round_start_s is None:
            self._begin_round(asyncio.get_running_loop())

    def durable(self, log: PartitionLog, offset: int) -> asyncio.Future[bool]:
        """Tell when everything of `log` below `offset` is durable as configured.

        Ask before anything is awaited after the append, or the failure may be over by then. The
        result is False if it never will be known to be durable: a sync failed, or the log is gone.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if log.high_watermark >= offset:
            future.set_result(True)
        else:
            self._waiting.setdefault(log, []).append((offset, future))
        return future

    def hurry(self) -> None:
        """Say that a request waits for the round to come: it begins now.

        What the connection has sent behind that request is then received and appended while the
        disk is at work; else the two would take turns. For the same reason a round that is over is
        noticed here, and not only when the loop has done what is ready.
        """
        loop = asyncio.get_running_loop()
        if self._wal.is_round_over:
            self._end_round(loop)
        if self._round_start_s is not None:
            self._order(loop)

    def abandon(self, log: PartitionLog) -> None:
        """Fail the waiters of a log that is deleted or offline, and wake its fetches."""
        for _, future in self._waiting.pop(log, ()):
            if not future.done():
                future.set_result(False)
        self._fetch_waiters.wake(log)

    async def stop(self) -> None:
        """Finish the rounds under way; nothing may be appended any more."""
        if self._round_start_s is not None:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        if self._is_listening:
            asyncio.get_running_loop().remove_reader(self._wal.round_event)
        for log in tuple(self._waiting):
            self.abandon(log)
        if self._worker is not None:
            self._orders.put(None)
            self._worker.join()
            self._worker = None

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._round_start_s = loop.time()
        # Not before what is ready has been done, unless somebody waits (`hurry`): more appends share
        # the round.
        self._is_ordered = False
        loop.call_soon(self._order, loop)

    def _order(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_ordered:
            return
        self._is_ordered = True
        if self._begin_compiled_round(loop):
            return
        if self._worker is None:
            self._worker = threading.Thread(target=self._run_rounds, name="sync", daemon=True)
            self._worker.start()
        self._orders.put(loop)

    def _begin_compiled_round(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether compiled threads have begun the round, or nobody can; else the worker does it."""
        try:
            has_begun = self._wal.begin_round()
            if has_begun and not self._is_listening:
                self._is_listening = True
                loop.add_reader(self._wal.round_event, self._on_round_event, loop)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must learn it
            mistake("sync round", error)
            self._round_over(loop, (), is_lost=True)
            return True
        return has_begun

    def _on_round_event(self, loop: asyncio.AbstractEventLoop) -> None:
        # Read before it is asked: a round that ends in between makes it readable again.
        with suppress(BlockingIOError):
            os.eventfd_read(self._wal.round_event)
        if self._wal.is_round_over:
            self._end_round(loop)

    def _end_round(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            synced = self._wal.end_round()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must learn it
            mistake("sync round", error)
            self._round_over(loop, (), is_lost=True)
            return
        self._round_over(loop, synced, is_lost=False)

    def _run_rounds(self) -> None:
        """Sync, in the worker, as often as ordered, and tell the loop."""
        while (loop := self._orders.get()) is not None:
            synced: tuple[Synced, ...] = ()
            is_lost = False
            try:
                synced = self._wal.sync_round()
            except Exception:  # noqa: BLE001 - whatever it was, those who wait must learn it
                _log.exception("a sync round failed unexpectedly")
                is_lost = True
            loop.call_soon_threadsafe(self._round_over, loop, synced, is_lost)

    def _round_over(
        self, loop: asyncio.AbstractEventLoop, round_: tuple[Synced, ...], is_lost: bool
    ) -> None:
        """Begin the next round if there is need; then tell everybody what this one has made durable."""
        assert self._round_start_s is not None
        if self._probe is not None:
            self._probe.sync_round_completed(loop.time() - self._round_start_s, len(round_))
        self._round_start_s = None
        goes_on = self._wal.has_dirty
        if goes_on:
            self._begin_round(loop)
            if self._waiting:
                self._order(loop)
        for synced in round_:
            with guarded("sync round"):
                self._advance(synced.log, synced.end_offset)
        for log in [log for log in self._waiting if is_lost or log.offline_reason is not None]:
            self.abandon(log)
        if not goes_on and self._idle is not None:
            self._idle.set_result(None)

    def _advance(self, log: PartitionLog, offset: int) -> None:
        """Move a log's high watermark, then answer those who waited for it."""
        log.advance_high_watermark(offset)
        waiting = self._waiting.pop(log, ())
        for wanted, future in waiting:
            if wanted <= offset and not future.done():
                future.set_result(True)
        rest = [(wanted, future) for wanted, future in waiting if wanted > offset]
        if rest:
            self._waiting[log] = rest
        self._fetch_waiters.wake(log)

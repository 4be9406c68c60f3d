"""Runs time-based duties on every log, busy or idle: rolling, checkpoints, retention, undos, flushes.

Idle logs need them too: the cleaner never touches an active segment, so without a roll an idle log would
keep its last segment dirty for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from cleaner.pacing.clock import HorizonClock
from metrics.mistakes import MISTAKES
from metrics.server_probe import ServerProbe
from server.runtime.clock import Clock
from server.runtime.executors import Executor
from server.runtime.tasks import spawn
from storage.files.errors import LogOffline, StorageError
from storage.log.log import PartitionLog
from storage.log.log_start import DeletedSegment

_log = logging.getLogger("server.durability.log_clock")

LOGS_PER_TURN = 100
"""How many logs a duty checks before it yields the loop."""

FIRST_DELAY_MS_MAX = 30_000
"""A duty first runs after this time at the latest: the broker may stop before a long interval ends."""

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """A job that runs on every log once per interval."""

    name: str
    """An infinitive, which the log line of a failure quotes after "cannot"."""
    interval_ms: int
    look: Callable[[PartitionLog, int], Work | None]
    """Called on the loop with a log and the wall time in ms; may return work for a worker thread."""
    done: Callable[[PartitionLog, Any], None] | None = None
    """Called on the loop with the result of the work."""


def roll_duty(interval_ms: int) -> Duty:
    """Returns the duty that rolls active segments which are too old (see `storage/log/roll.py`)."""
    return Duty(name="roll", interval_ms=interval_ms, look=_roll_if_due)


def _roll_if_due(log: PartitionLog, now_ms: int) -> None:
    log.roll_if_due(now_ms)


def checkpoint_duty(interval_ms: int) -> Duty:
    """Returns the duty that advances the recovery points of logs that have grown."""
    return Duty(name="checkpoint", interval_ms=interval_ms, look=_checkpoint)


def _checkpoint(log: PartitionLog, _now_ms: int) -> Work | None:
    return log.checkpoint()


def retention_duty(interval_ms: int, clock: Clock, probe: ServerProbe) -> Duty:
    """Returns the duty that deletes segments beyond the retention.

    It uses a `HorizonClock`, so that a wall clock that is wrong for a moment does not delete all data.
    """
    horizon_clock = HorizonClock(clock)

    def look(log: PartitionLog, _now_ms: int) -> Work | None:
        now_ms, _ = horizon_clock.read()
        return partial(log.retain, now_ms) if log.retention_is_due(now_ms) else None

    def done(log: PartitionLog, deleted: Sequence[DeletedSegment]) -> None:
        if log.offline_reason is None:
            for each in deleted:
                probe.segment_deleted(log.topic_partition.topic, each.reason.value, each.size)

    return Duty(name="delete old segments", interval_ms=interval_ms, look=look, done=done)


def undo_duty(interval_ms: int, clock: Clock) -> Duty:
    """Returns the duty that removes what is kept for an undo once its time is over.

    It uses a `HorizonClock`, like retention.
    """
    horizon_clock = HorizonClock(clock)

    def look(log: PartitionLog, _now_ms: int) -> Work | None:
        if not log.passes_kept:
            return None
        now_ms, _ = horizon_clock.read()
        return partial(log.expire_kept, now_ms) if log.kept_is_due(now_ms) else None

    return Duty(name="remove what was kept for an undo", interval_ms=interval_ms, look=look)


class LogClock:
    """Runs each duty in a task of its own, so that a slow duty does not delay the others."""

    __slots__ = ("_clock", "_logs", "_stopping", "_tasks", "_upkeep")

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        clock: Clock,
        duties: Sequence[Duty],
        upkeep: Executor,
    ) -> None:
        """Start the duties.

        Args:
            logs: returns all current logs; any thread calls it.
            upkeep: runs the work that duties return.
        """
        self._logs = logs
        self._clock = clock
        self._upkeep = upkeep
        self._stopping = asyncio.Event()
        self._tasks = [spawn(self._run(duty), f"log clock: {duty.name}") for duty in duties]

    async def stop(self) -> None:
        """Start no more duties, and wait for work that is running in threads."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _run(self, duty: Duty) -> None:
        await self._sleep(min(duty.interval_ms, FIRST_DELAY_MS_MAX))
        while not self._stopping.is_set():
            # In a thread: with 100,000 topics, the list alone takes 50 ms.
            logs = await self._upkeep.run(self._all_logs)
            for number, log in enumerate(logs, start=1):
                if self._stopping.is_set():
                    return
                await self._run_on(duty, log)
                if number % LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
            await self._sleep(duty.interval_ms)

    def _all_logs(self) -> tuple[PartitionLog, ...]:
        return tuple(self._logs())

    async def _sleep(self, interval_ms: int) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), interval_ms / 1000)

    async def _run_on(self, duty: Duty, log: PartitionLog) -> None:
        """Run a duty on one log; if it fails, the next interval retries it."""
        try:
            work = duty.look(log, self._clock.now_ms())
            if work is None:
                return
            result = await self._upkeep.run(work)
            if duty.done is not None:
                duty.done(log, result)
        except LogOffline:
            return
        except StorageError as error:
            if log.offline_reason is None:
                _log.warning("%s: cannot %s: %s", log.topic_partition, duty.name, error)
        except Exception:  # noqa: BLE001 - one log must not end the duty for all logs
            # A bug. If the task ended here, no log would roll or delete segments again.
            _log.exception("%s: cannot %s", log.topic_partition, duty.name)
            MISTAKES.count(f"log clock: {duty.name}")

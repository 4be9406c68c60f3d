"""Does what time causes in every log, busy or idle: it rolls what is old, and more as it is given.

A log that nobody writes to must do these things as well: the cleaner never touches an active segment, so
an idle log would keep its last one dirty for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from cleaner.clock import HorizonClock
from metrics.mistakes import MISTAKES
from metrics.server_probe import ServerProbe
from server.clock import Clock
from server.executors import Executor
from server.tasks import spawn
from storage.errors import LogOffline, StorageError
from storage.log import PartitionLog
from storage.log_start import DeletedSegment

_log = logging.getLogger("server.log_clock")

LOGS_AT_ONCE = 100
"""So many logs are looked at before the loop gets its turn again."""

FIRST_DELAY_MS_MAX = 30_000
"""A duty with a long interval is first done this soon: a broker may not run for that long."""

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Something to be done to every log, every interval."""

    name: str
    """An infinitive, for the sentence that says that it failed."""
    interval_ms: int
    look: Callable[[PartitionLog, int], Work | None]
    """Called on the loop with a log and the time; what it returns is done in a worker thread."""
    done: Callable[[PartitionLog, Any], None] | None = None
    """Told, on the loop, what the work has returned."""


def roll_duty(interval_ms: int) -> Duty:
    """Roll active segments whose time is over."""
    return Duty(name="roll", interval_ms=interval_ms, look=_roll_if_due)


def _roll_if_due(log: PartitionLog, now_ms: int) -> None:
    log.roll_if_due(now_ms)


def checkpoint_duty(interval_ms: int) -> Duty:
    """Move the recovery points of logs that have grown since."""
    return Duty(name="checkpoint", interval_ms=interval_ms, look=_checkpoint)


def _checkpoint(log: PartitionLog, _now_ms: int) -> Work | None:
    return log.checkpoint()


def retention_duty(interval_ms: int, clock: Clock, probe: ServerProbe) -> Duty:
    """Delete old segments. A wall clock that was set wrong for a moment must not delete them all."""
    horizon_clock = HorizonClock(clock)

    def look(log: PartitionLog, _now_ms: int) -> Work | None:
        now_ms, _ = horizon_clock.read()
        return partial(log.retain, now_ms) if log.retention_is_due(now_ms) else None

    def done(log: PartitionLog, deleted: Sequence[DeletedSegment]) -> None:
        if log.offline_reason is None:
            for each in deleted:
                probe.segment_deleted(log.topic_partition.topic, each.reason.value, each.size)

    return Duty(name="delete old segments", interval_ms=interval_ms, look=look, done=done)


class LogClock:
    """Does its duties, each in a task of its own, so that a slow one does not hold up the others."""

    __slots__ = ("_clock", "_logs", "_stopping", "_tasks", "_upkeep")

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        clock: Clock,
        duties: Sequence[Duty],
        upkeep: Executor,
    ) -> None:
        """`logs` gives all logs that are there at the moment; `upkeep` does the work of duties."""
        self._logs = logs
        self._clock = clock
        self._upkeep = upkeep
        self._stopping = asyncio.Event()
        self._tasks = [spawn(self._run(duty), f"log clock: {duty.name}") for duty in duties]

    async def stop(self) -> None:
        """Begin nothing any more, and wait for what worker threads are at."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _run(self, duty: Duty) -> None:
        await self._rest(min(duty.interval_ms, FIRST_DELAY_MS_MAX))
        while not self._stopping.is_set():
            for number, log in enumerate(tuple(self._logs()), start=1):
                if self._stopping.is_set():
                    return
                await self._do(duty, log)
                if number % LOGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await self._rest(duty.interval_ms)

    async def _rest(self, interval_ms: int) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), interval_ms / 1000)

    async def _do(self, duty: Duty, log: PartitionLog) -> None:
        """Do a duty to one log; where it fails, it is tried again after the interval."""
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
        except Exception:  # noqa: BLE001 - a duty must not end with one log
            # A mistake of ours; without the clock nothing would roll or go any more.
            _log.exception("%s: cannot %s", log.topic_partition, duty.name)
            MISTAKES.count(f"log clock: {duty.name}")

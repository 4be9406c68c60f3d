"""Rolls the active segments whose time is over, of every log, busy or idle.

The cleaner never touches an active segment, so an idle log would keep its last one dirty for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from server.clock import Clock
from storage.errors import StorageError
from storage.log import PartitionLog

_log = logging.getLogger("server.log_roller")

LOGS_AT_ONCE = 500
"""So many logs are looked at before the loop gets its turn again."""


class LogRoller:
    """One task that looks at all logs every interval."""

    __slots__ = ("_clock", "_interval_s", "_logs", "_task")

    def __init__(
        self, logs: Callable[[], Iterable[PartitionLog]], clock: Clock, *, interval_ms: int
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            for number, log in enumerate(self._logs()):
                if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                    await asyncio.sleep(0)
                self._roll_if_due(log)

    def _roll_if_due(self, log: PartitionLog) -> None:
        """A log that cannot roll now is looked at again; it goes on in the segment it has."""
        try:
            log.roll_if_due(self._clock.now_ms())
        except StorageError as error:
            _log.warning("%s: cannot roll: %s", log.topic_partition, error)

"""Waits until logs have more committed records, for requests that wait for another value."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from server.durability.fetch_waiters import FetchWaiters
from storage.log.log import PartitionLog
from storage.threads import loop_thread


@loop_thread
class KeyChanges:
    """One request's wait; a context manager. It watches from its start, so that no change is missed."""

    __slots__ = ("_ends_at", "_logs", "_parked")

    def __init__(self, waiters: FetchWaiters, logs: Sequence[PartitionLog], seconds: float) -> None:
        """
        Args:
            seconds: how long it waits at most; 0 does not watch.
        """
        self._logs = logs
        self._parked = waiters.park() if seconds > 0 else None
        self._ends_at = asyncio.get_running_loop().time() + seconds

    def __enter__(self) -> Self:
        if self._parked is not None:
            for log in self._logs:
                self._parked.watch(log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._parked is not None:
            self._parked.leave()

    async def next(self) -> bool:
        """Wait until a log has changed since the last call. Returns False if the time is over."""
        left = self._ends_at - asyncio.get_running_loop().time()
        if self._parked is None or left <= 0:
            return False
        await self._parked.wait(left)
        return bool(self._parked.take_woken())

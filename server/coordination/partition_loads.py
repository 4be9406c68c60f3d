"""Loads the partitions of a coordinator's topic into memory after a start.

A coordinator serves a partition only after it has read all of it. It does not serve a partition that it
cannot read, because it would treat existing groups or transactions as missing. It retries the load with
growing pauses: the disk may come back, or an operator may repair the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from protocol.wire.error_codes import ErrorCode
from server.runtime.tasks import report_failure, spawn
from storage.files.errors import StorageError
from storage.threads import any_thread, loop_thread

LOADERS = 2
"""The number of partitions that load in parallel."""

RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 300.0
"""A failed load is retried after `RETRY_SECONDS`; the pause doubles each time, up to this."""

STATES = ("loading", "active", "failed")
"""Kafka's words for the states of a partition."""

Load: TypeAlias = Callable[[int], Awaitable[None]]


@loop_thread
class PartitionLoads:
    """Loads partitions and keeps those that are not served yet."""

    __slots__ = ("_failed", "_is_idle", "_loaders", "_loading", "_log", "_retrier")

    def __init__(self, partitions_count: int, log: logging.Logger) -> None:
        # Constant after construction
        self._log = log
        # State
        self._loading = set(range(partitions_count))
        """Partitions whose first load has not ended."""
        self._failed: set[int] = set()
        """Partitions whose loads have failed so far."""
        self._loaders: list[asyncio.Task[None]] = []
        self._retrier: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()
        """Set while no failed load is being retried."""
        self._is_idle.set()

    def start(self, load: Load) -> None:
        """Start to load all partitions.

        Args:
            load: reads a partition and starts to serve it; if it raises StorageError, it serves
                nothing of the partition.
        """
        waiting = deque(sorted(self._loading))
        self._loaders = [
            spawn(self._load_all(waiting, load), "partition load") for _ in range(LOADERS)
        ]
        self._retrier = spawn(self._retry_failed(load), "partition load")

    async def stop(self) -> None:
        tasks = self._loaders if self._retrier is None else [*self._loaders, self._retrier]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    @property
    def is_loading(self) -> bool:
        """Whether the first load of some partition has not ended."""
        return bool(self._loading)

    @property
    def is_complete(self) -> bool:
        """Whether every partition is served."""
        return not self._loading and not self._failed

    async def loaded(self) -> None:
        """Wait until no load is running; failed ones may be retried later."""
        if self._loaders:
            # Not `gather`: if this caller is cancelled, the loads must continue.
            await asyncio.wait(self._loaders)
        await self._is_idle.wait()

    def error(self, partition: int) -> ErrorCode:
        """Returns the error code for requests to a partition; NONE once it is served."""
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if partition in self._failed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    @any_thread
    def by_state(self, partitions_count: int) -> dict[str, int]:
        """Returns how many of `partitions_count` partitions are in each of the `STATES`."""
        loading, failed = len(self._loading), len(self._failed)
        active = max(partitions_count - loading - failed, 0)
        return dict(zip(STATES, (loading, active, failed), strict=True))

    async def _load_all(self, waiting: deque[int], load: Load) -> None:
        while waiting:
            partition = waiting.popleft()
            if not await self._load(partition, load, RETRY_SECONDS):
                self._failed.add(partition)
            self._loading.discard(partition)

    async def _retry_failed(self, load: Load) -> None:
        await self.loaded()
        seconds = RETRY_SECONDS
        while self._failed:
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, RETRY_SECONDS_MAX)
            self._is_idle.clear()
            for partition in sorted(self._failed):
                if await self._load(partition, load, seconds):
                    self._failed.discard(partition)
                    self._log.warning("partition %d: loaded after a retry, now served", partition)
            self._is_idle.set()

    async def _load(self, partition: int, load: Load, retry_seconds: float) -> bool:
        """Load one partition. Returns whether it is served now."""
        try:
            await load(partition)
        except StorageError as error:
            self._log.error(
                "partition %d: not served: %s; retrying in %g s", partition, error, retry_seconds
            )
            return False
        except Exception as error:  # noqa: BLE001 - the other partitions must still load
            report_failure("partition load", error)
            return False
        return True

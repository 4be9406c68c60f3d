"""Which partitions of a coordinator's topic are still being read back after a start.

What a partition holds is not known before all of it has been read; then it is, and stays in memory.
A partition that cannot be read is not served, because what stands in it must not be taken for
nothing. It is tried again, ever more seldom: a disk may come back, and a tool may mend a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from protocol.error_codes import ErrorCode
from server.tasks import mistake, spawn
from storage.errors import StorageError

LOADERS = 2
"""So many partitions are read at once."""

RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 300.0
"""How long a partition that could not be read is left alone: doubled each time, up to this."""

STATES = ("loading", "active", "failed")
"""Kafka's words for what becomes of a partition."""

Load: TypeAlias = Callable[[int], Awaitable[None]]


class PartitionLoads:
    """The partitions that are not served yet, or not at all. Lives on the event loop."""

    __slots__ = ("_failed", "_is_idle", "_loaders", "_loading", "_log", "_retrier")

    def __init__(self, partitions_count: int, log: logging.Logger) -> None:
        # Constant after construction
        self._log = log
        # State
        self._loading = set(range(partitions_count))
        """Partitions that are not read yet."""
        self._failed: set[int] = set()
        """Partitions that could not be read, so far."""
        self._loaders: list[asyncio.Task[None]] = []
        self._retrier: asyncio.Task[None] | None = None
        self._is_idle = asyncio.Event()
        """No partition is being tried again."""
        self._is_idle.set()

    def start(self, load: Load) -> None:
        """Begin to read what was written before.

        Args:
            load: reads a partition and serves what it has found; may raise StorageError, and then
                has served nothing.
        """
        waiting = deque(sorted(self._loading))
        self._loaders = [
            spawn(self._load_all(waiting, load), "partition load") for _ in range(LOADERS)
        ]
        self._retrier = spawn(self._try_again(load), "partition load")

    async def stop(self) -> None:
        tasks = self._loaders if self._retrier is None else [*self._loaders, self._retrier]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    @property
    def is_loading(self) -> bool:
        """Whether a partition has not been tried yet."""
        return bool(self._loading)

    async def loaded(self) -> None:
        """Wait until nothing is being read; what could not be may be tried again later."""
        if self._loaders:
            # Not `gather`: whoever stops waiting must not stop them.
            await asyncio.wait(self._loaders)
        await self._is_idle.wait()

    def error(self, partition: int) -> ErrorCode:
        """Why nobody can say what a partition holds; NONE once it is served."""
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if partition in self._failed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def by_state(self, partitions_count: int) -> dict[str, int]:
        """How many of so many partitions are in each of the `STATES`. Any thread."""
        loading, failed = len(self._loading), len(self._failed)
        active = max(partitions_count - loading - failed, 0)
        return dict(zip(STATES, (loading, active, failed), strict=True))

    async def _load_all(self, waiting: deque[int], load: Load) -> None:
        while waiting:
            partition = waiting.popleft()
            if not await self._load(partition, load, RETRY_SECONDS):
                self._failed.add(partition)
            self._loading.discard(partition)

    async def _try_again(self, load: Load) -> None:
        await self.loaded()
        seconds = RETRY_SECONDS
        while self._failed:
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, RETRY_SECONDS_MAX)
            self._is_idle.clear()
            for partition in sorted(self._failed):
                if await self._load(partition, load, seconds):
                    self._failed.discard(partition)
                    self._log.warning("partition %d could be read now, and is served", partition)
            self._is_idle.set()

    async def _load(self, partition: int, load: Load, retry_seconds: float) -> bool:
        """Whether it is served now."""
        try:
            await load(partition)
        except StorageError as error:
            self._log.error("not served: %s; it is tried again in %g s", error, retry_seconds)
            return False
        except Exception as error:  # noqa: BLE001 - the other partitions are to be served
            mistake("partition load", error)
            return False
        return True

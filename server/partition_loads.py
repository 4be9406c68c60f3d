"""Which partitions of a coordinator's topic are still being read back after a start.

What a partition holds is not known before all of it has been read; then it is, and stays in memory.
A partition that cannot be read is not served: what stands in it must not be taken for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from protocol.error_codes import ErrorCode
from storage.errors import StorageError

LOADERS = 2
"""So many partitions are read at once."""


class PartitionLoads:
    """The partitions that are not served yet, or not at all. Lives on the event loop."""

    __slots__ = ("_failed", "_loaders", "_loading", "_log")

    def __init__(self, partitions_count: int, log: logging.Logger) -> None:
        # Constant after construction
        self._log = log
        # State
        self._loading = set(range(partitions_count))
        """Partitions that are not read yet."""
        self._failed: set[int] = set()
        """Partitions that could not be read."""
        self._loaders: list[asyncio.Task[None]] = []

    def start(self, load: Callable[[int], Awaitable[None]]) -> None:
        """Begin to read what was written before.

        Args:
            load: reads a partition and serves what it has found; may raise StorageError.
        """
        waiting = deque(sorted(self._loading))
        self._loaders = [asyncio.create_task(self._load_all(waiting, load)) for _ in range(LOADERS)]

    async def stop(self) -> None:
        for loader in self._loaders:
            loader.cancel()
        for loader in self._loaders:
            with suppress(asyncio.CancelledError):
                await loader

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    async def loaded(self) -> None:
        """Wait until there is nothing to read any more."""
        if self._loaders:
            # Not `gather`: whoever stops waiting must not stop them.
            await asyncio.wait(self._loaders)

    def error(self, partition: int) -> ErrorCode:
        """Why nobody can say what a partition holds; NONE once it is served."""
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if partition in self._failed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def _load_all(self, waiting: deque[int], load: Callable[[int], Awaitable[None]]) -> None:
        while waiting:
            partition = waiting.popleft()
            try:
                await load(partition)
            except StorageError as error:
                self._log.error("not served: %s", error)
                self._failed.add(partition)
            self._loading.discard(partition)

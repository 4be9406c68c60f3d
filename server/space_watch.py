"""Watches the free space of the log directories, and tells the cleaner which are short of it.

The disks are asked in a thread, every `CHECK_SECONDS`: one that hangs must not hold the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from metrics.cleaner_probe import CleanerCounts
from server.executors import Executor
from server.tasks import every, spawn
from storage.errors import DiskError
from storage.files import FileSystem
from storage.log_directory import LogDirectory

_log = logging.getLogger("server.space_watch")

CHECK_SECONDS = 5.0


class SpaceWatch:
    """One task that asks the disks. Lives on the event loop; `stop` ends it."""

    __slots__ = (
        "_cleaner",
        "_directories",
        "_files",
        "_free_bytes_min",
        "_short",
        "_task",
        "_tell",
        "_upkeep",
    )

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        files: FileSystem,
        cleaner: CleanerCounts,
        *,
        free_bytes_min: int,
        tell: Callable[[frozenset[str]], None],
        upkeep: Executor,
    ) -> None:
        """`tell` gets the ids of the directories that have less than `free_bytes_min` left."""
        # Constant after construction
        self._directories = directories
        self._files = files
        self._cleaner = cleaner
        self._tell = tell
        self._upkeep = upkeep
        # State
        self._free_bytes_min = free_bytes_min
        self._short: frozenset[str] = frozenset()
        self._task = spawn(
            every(CHECK_SECONDS, self._look, "space watch", at_once=True), "space watch"
        )

    def set_free_bytes_min(self, free_bytes_min: int) -> None:
        """Take another bound from the next check on; 0 is never undercut."""
        self._free_bytes_min = free_bytes_min

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _look(self) -> None:
        self._decide(await self._upkeep.run(self._ask))

    def _ask(self) -> dict[LogDirectory, int]:
        """The free bytes of each directory in service whose disk tells them."""
        free: dict[LogDirectory, int] = {}
        for directory in self._directories:
            if directory.offline_reason is None:
                directory.keep_reserve()
                # What is wrong with the disk is found by those who use it.
                with suppress(DiskError):
                    free[directory] = self._files.free_bytes(directory.path)
        return free

    def _decide(self, free: dict[LogDirectory, int]) -> None:
        short = {each for each, bytes_count in free.items() if bytes_count < self._free_bytes_min}
        ids = frozenset(each.directory_id for each in short)
        self._cleaner.space_checked(
            {each.path: bytes_count for each, bytes_count in free.items()}, short_count=len(short)
        )
        if ids != self._short:
            paths = ", ".join(sorted(each.path for each in short)) or "no directory"
            _log.warning("short of disk space: %s", paths)
            self._short = ids
            self._tell(ids)

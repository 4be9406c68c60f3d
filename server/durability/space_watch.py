"""Checks the free space of the log directories, and tells the cleaner which of them run short.

In a directory that runs short, what is kept for undos of passes goes first.

A thread reads the free space every `CHECK_SECONDS`, because a disk that hangs must not block the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from cleaner.rules.text import size_text
from metrics.cleaner_probe import CleanerCounts
from server.runtime.executors import Executor
from server.runtime.tasks import every, spawn
from storage.files.errors import DiskError, StorageError
from storage.files.files import FileSystem
from storage.log.directory import LogDirectory
from storage.threads import any_thread, loop_thread
from storage.undo.undo_file import EndReason

_log = logging.getLogger("server.durability.space_watch")

CHECK_SECONDS = 5.0


@loop_thread
class SpaceWatch:
    """A task that checks free space periodically; `stop` ends it."""

    __slots__ = (
        "_cleaner",
        "_directories",
        "_files",
        "_free_bytes_min",
        "_pinned_bytes",
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
        pinned_bytes: Callable[[], int],
        tell: Callable[[frozenset[str]], None],
        upkeep: Executor,
    ) -> None:
        """Start the task. It calls `tell` with the ids of the directories that have less than
        `free_bytes_min` left, whenever they change.

        Args:
            pinned_bytes: returns how many bytes of the disks only snapshots hold, which no pass frees.
        """
        # Constant after construction
        self._directories = directories
        self._files = files
        self._cleaner = cleaner
        self._pinned_bytes = pinned_bytes
        self._tell = tell
        self._upkeep = upkeep
        # State
        self._free_bytes_min = free_bytes_min
        self._short: frozenset[str] = frozenset()
        self._task = spawn(
            every(CHECK_SECONDS, self._look, "space watch", at_once=True), "space watch"
        )

    def set_free_bytes_min(self, free_bytes_min: int) -> None:
        """Change the bound, from the next check on. With 0 no directory ever counts as short."""
        self._free_bytes_min = free_bytes_min

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _look(self) -> None:
        self._report(await self._upkeep.run(self._read_free_bytes))

    @any_thread
    def _read_free_bytes(self) -> dict[LogDirectory, int]:
        """Returns the free bytes of each online directory whose disk reports them."""
        free: dict[LogDirectory, int] = {}
        for directory in self._directories:
            if directory.offline_reason is None:
                directory.keep_reserve()
                # The next read or write of the log reports the failure of the disk.
                with suppress(DiskError):
                    free[directory] = self._files.free_bytes(directory.path)
                    if free[directory] < self._free_bytes_min:
                        _drop_kept(directory)
        return free

    def _report(self, free: dict[LogDirectory, int]) -> None:
        short = {each for each, bytes_count in free.items() if bytes_count < self._free_bytes_min}
        ids = frozenset(each.directory_id for each in short)
        self._cleaner.space_checked(
            {each.path: bytes_count for each, bytes_count in free.items()}, short_count=len(short)
        )
        if ids != self._short:
            paths = ", ".join(sorted(each.path for each in short)) or "no directory"
            pinned = self._pinned_bytes() if short else 0
            hint = (
                f"; snapshots hold {size_text(pinned)}: see 'kompakt snapshot list'"
                if pinned
                else ""
            )
            _log.warning("short of disk space: %s%s", paths, hint)
            self._short = ids
            self._tell(ids)


def _drop_kept(directory: LogDirectory) -> None:
    """Remove what a directory's logs keep for undos. A failure of the disk is reported by its log."""
    for log in directory.logs():
        if log.passes_kept:
            with suppress(StorageError):
                log.drop_passes_kept(EndReason.DISK)

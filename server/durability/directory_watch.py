"""Detects log directories that went offline, and abandons their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from server.runtime.tasks import every, guarded, spawn
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog

INTERVAL_SECONDS = 0.5


class DirectoryWatch:
    """A task that polls the directories. A failing directory marks itself offline, in any thread."""

    __slots__ = ("_abandon", "_directories", "_fail", "_metadata_path", "_seen", "_task")

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        *,
        metadata_path: str,
        abandon: Callable[[PartitionLog], None],
        fail: Callable[[str], None],
    ) -> None:
        """Start the task.

        Args:
            metadata_path: the directory without which the broker cannot run.
            abandon: called with each log of a directory that went offline.
            fail: called with the reason when the broker cannot continue.
        """
        self._directories = directories
        self._metadata_path = metadata_path
        self._abandon = abandon
        self._fail = fail
        self._seen: set[str] = set()
        self._task = spawn(
            every(INTERVAL_SECONDS, self._look, "directory watch"), "directory watch"
        )

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _look(self) -> None:
        for directory in self._directories:
            if directory.offline_reason is not None and directory.path not in self._seen:
                self._went_offline(directory)

    def _went_offline(self, directory: LogDirectory) -> None:
        self._seen.add(directory.path)
        for log in directory.logs():
            with guarded("directory watch"):
                self._abandon(log)
        if directory.path == self._metadata_path:
            self._fail(f"log directory {directory.path}, which holds the metadata, is offline")
        elif len(self._seen) == len(self._directories):
            self._fail("all log directories are offline")

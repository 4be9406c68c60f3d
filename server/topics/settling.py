"""Settles new logs: makes them durable after the requests that created them were answered.

    1  the stores: the topic exists, its new logs may be missing   (`creation.py`, `growth.py`)
       <- the request is answered
    2  the logs' files, and their syncs, here
    3  the node's store forgets that logs may be missing

An acknowledged record is also durable before step 3: the first write to a log creates its files, and
its first sync also syncs its directory entries (`storage/log/new_files.py`). A start that finds step 1
creates the logs that are missing; nothing was ever acknowledged in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.rules.text import count_text
from server.metadata.store import Delete, MetadataStore, Put, write_unless_disk_full
from server.runtime.executors import Executor
from server.runtime.tasks import spawn
from server.topics.keys import unsettled_key
from server.topics.topic import Topic
from storage.files.errors import StorageError
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.threads import loop_thread

_log = logging.getLogger("server.topics.topics")

TOGETHER_MIN = 16
"""From this many logs of a directory on, one sync of the whole disk replaces two for each log. It waits
for the unwritten bytes of all programs, so it is not for a few logs."""
LOGS_AT_ONCE = 64
"""The logs in one job, with three new files or two syncs each. A stop waits for the started jobs."""
JOBS_AT_ONCE = 2
"""Half the threads of the pool; the others are left to requests."""
STOPPING_SECONDS = 2.0
"""How long a stop waits until all logs are durable; the next start settles the rest."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Logs that may not survive a crash, and the key under which the store says so."""

    key: str
    logs: tuple[PartitionLog, ...]


@loop_thread
class TopicSettling:
    """Creates and syncs the files of new logs, then updates the node's store."""

    __slots__ = ("_administration", "_directories", "_is_stopping", "_store", "_task", "_waiting")

    def __init__(
        self,
        node_store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
    ) -> None:
        # Constant after construction
        self._store = node_store
        self._directories = {each.directory_id: each for each in directories}
        self._administration = administration
        # State
        self._waiting: list[Unsettled] = []
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def settle_later(self, unsettled: Sequence[Unsettled]) -> None:
        """Start to make these logs durable, after those that are already waiting."""
        self._waiting += unsettled
        if self._waiting and self._task is None and not self._is_stopping:
            self._task = spawn(self._settle_all(), "settling of new logs")

    async def resume(
        self,
        opened: Sequence[tuple[Topic, int]],
        keys: Sequence[str],
        others: Sequence[Put | Delete],
    ) -> None:
        """Continue the settling that the last run has not completed.

        Args:
            opened: topics with unsettled logs, and the first partition of these.
            keys: the keys of unsettled logs in the store now, except those of other topics that stay.
            others: further operations for the same transaction.
        """
        wanted = {unsettled_key(topic, first): topic.partitions[first:] for topic, first in opened}
        gone = [Delete(key=key) for key in keys if key not in wanted]
        new = [Put(key=key, value="") for key in wanted if key not in keys]
        await write_unless_disk_full(self._store, [*others, *gone, *new])
        for key, partitions in wanted.items():
            logs = tuple(log for log in partitions if isinstance(log, PartitionLog))
            # If a log is offline, the next start tries again.
            if len(logs) == len(partitions):
                self.settle_later([Unsettled(key, logs)])

    async def finish(self) -> None:
        """Wait until all logs are durable."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Finish within `STOPPING_SECONDS`, or end soon and leave the rest to the next start."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOPPING_SECONDS)
        self._is_stopping = True
        await self.finish()

    async def _settle_all(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting, []
                await self._settle(some)
        finally:
            self._task = None

    async def _settle(self, some: Sequence[Unsettled]) -> None:
        by_directory: dict[str, list[PartitionLog]] = {}
        for log in (log for each in some for log in each.logs):
            by_directory.setdefault(log.identity.directory_id, []).append(log)
        try:
            for directory_id, logs in by_directory.items():
                if not await self._make_safe(self._directories[directory_id], logs):
                    return
            await self._store.txn((), [Delete(key=each.key) for each in some])
        except StorageError as error:
            # The logs' first sync tries again; for logs without one, the next start does.
            count = sum(len(each.logs) for each in some)
            _log.warning("%s may not survive a crash yet: %s", count_text(count, "new log"), error)

    async def _make_safe(self, directory: LogDirectory, logs: Sequence[PartitionLog]) -> bool:
        """Create and sync the files of the logs. Returns False if a stop interrupted it."""
        for start in range(0, len(logs), LOGS_AT_ONCE):
            if self._is_stopping:
                return False
            some = logs[start : start + LOGS_AT_ONCE]
            await self._administration.run(directory.new_logs.make_files, some)
        together = len(logs) >= TOGETHER_MIN and not self._is_stopping
        if together and await self._administration.run(directory.new_logs.make_all_safe, logs):
            return True
        step = LOGS_AT_ONCE * JOBS_AT_ONCE
        for start in range(0, len(logs), step):
            if self._is_stopping:
                return False
            some = logs[start : start + step]
            jobs = (some[at::JOBS_AT_ONCE] for at in range(JOBS_AT_ONCE))
            await asyncio.gather(
                *(self._administration.run(directory.new_logs.make_safe, job) for job in jobs)
            )
        return True

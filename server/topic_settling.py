"""Makes new logs durable behind the answers to the requests that asked for them.

    1  the store: the topic, and that its logs are being made      (`topic_making.py`, `topic_growth.py`)
    2  the logs' files, none of which is synced
    3  the store: the topic is there, its new logs may not survive a crash   <- the request is answered
    4  the files' syncs, here
    5  the store forgets step 3

A record that a client is told of is safe before step 5 too: the first sync of a log makes its names
safe (`storage/new_names.py`). A start that finds step 3 makes those logs again that were never
written to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.text import count_text
from server.executors import Executor
from server.metadata_store import Delete, MetadataStore, Put, note_if_there_is_space
from server.tasks import spawn
from server.topic import Topic
from server.topic_keys import unsettled_key
from storage.errors import StorageError
from storage.log import PartitionLog
from storage.log_directory import LogDirectory

_log = logging.getLogger("server.topics")

LOGS_AT_ONCE = 64
"""Two syncs each: so long does a stop wait for them."""
JOBS_AT_ONCE = 2
"""Half the threads of the pool; the others are for requests."""
STOPPING_SECONDS = 2.0
"""How long a stop waits for all logs to be durable; the next start does the rest."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Logs that a crash may take, and the key under which the store says so."""

    key: str
    logs: tuple[PartitionLog, ...]


class TopicSettling:
    """Syncs files and tells the store. Lives on the event loop."""

    __slots__ = ("_administration", "_directories", "_is_stopping", "_store", "_task", "_waiting")

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
    ) -> None:
        # Constant after construction
        self._store = store
        self._directories = {each.directory_id: each for each in directories}
        self._administration = administration
        # State
        self._waiting: list[Unsettled] = []
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def settle_later(self, unsettled: Sequence[Unsettled]) -> None:
        """Begin to make these logs durable, after those that wait already."""
        self._waiting += unsettled
        if self._waiting and self._task is None and not self._is_stopping:
            self._task = spawn(self._settle_all(), "settling of new logs")

    async def resume(
        self, opened: Sequence[tuple[Topic, int]], keys: Sequence[str], done: Sequence[Delete]
    ) -> None:
        """Go on after a start.

        Args:
            opened: topics with logs that a crash may take, and from which partition on.
            keys: under which the store says so now.
            done: what else the store shall forget in the same transaction.
        """
        wanted = {unsettled_key(topic, first): topic.partitions[first:] for topic, first in opened}
        gone = [Delete(key=key) for key in keys if key not in wanted]
        new = [Put(key=key, value="") for key in wanted if key not in keys]
        await note_if_there_is_space(self._store, [*done, *gone, *new])
        for key, partitions in wanted.items():
            logs = tuple(log for log in partitions if isinstance(log, PartitionLog))
            # Where one is offline, the next start looks again.
            if len(logs) == len(partitions):
                self.settle_later([Unsettled(key, logs)])

    async def finish(self) -> None:
        """Wait until all logs are durable."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Finish if that takes a moment only; else end soon, and leave the rest to the next start."""
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
            # Their first sync tries again, and else the next start.
            count = sum(len(each.logs) for each in some)
            _log.warning("%s may not survive a crash yet: %s", count_text(count, "new log"), error)

    async def _make_safe(self, directory: LogDirectory, logs: Sequence[PartitionLog]) -> bool:
        """Sync the files of the logs, a few at a time; False if a stop came between."""
        step = LOGS_AT_ONCE * JOBS_AT_ONCE
        for start in range(0, len(logs), step):
            if self._is_stopping:
                return False
            some = logs[start : start + step]
            jobs = (some[at::JOBS_AT_ONCE] for at in range(JOBS_AT_ONCE))
            await asyncio.gather(
                *(self._administration.run(directory.make_safe, job) for job in jobs)
            )
        return True

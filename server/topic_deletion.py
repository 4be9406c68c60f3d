"""Deletes topics: the store first, then their files in the background, many topics at a time.

    1  the store: the topics are gone, and may have files left
    2  the files, of every directory that is in service
    3  the store forgets them, once no directory can have any of their files

What does not come to its end goes on at the next start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Sequence

from server.executors import Executor
from server.metadata_store import Delete, MetadataStore, Put
from server.tasks import spawn
from server.topic import Topic
from server.topic_keys import CREATING, DELETED, TOPICS, UNSETTLED
from server.topic_names import parse_id
from storage.errors import StorageError
from storage.files import FileSystem
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text

_log = logging.getLogger("server.topics")

BATCH_TOPICS = 200
"""So many topics are one transaction, and so many are removed before a stop is looked for."""

Named = tuple[str, uuid.UUID]
"""A topic that is gone, by its name and id."""


class TopicDeletion:
    """Changes store and directories; `Topics`, which owns the topics, calls it. On the event loop."""

    __slots__ = (
        "_administration", "_directories", "_files", "_has_all_directories", "_is_stopping",
        "_removals", "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
        *,
        files: FileSystem,
        has_all_directories: bool,
    ) -> None:
        # Constant after construction
        self._store = store
        self._directories = directories
        self._administration = administration
        self._files = files
        self._has_all_directories = has_all_directories
        # State
        self._removals: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def mark(self, topics: Sequence[Topic]) -> None:
        """Let the topics be gone; durable when this returns. Raises StorageError."""
        operations: list[Put | Delete] = []
        for topic in topics:
            topic_id = topic_id_text(topic.id)
            unsettled = (await self._store.range(f"{UNSETTLED}{topic_id}/")).entries
            operations += [
                Delete(key=TOPICS + topic.name),
                Delete(key=CREATING + topic_id),
                *(Delete(key=entry.key) for entry in unsettled),
                Put(key=DELETED + topic_id, value=json.dumps({"name": topic.name})),
            ]
        await self._store.txn((), operations)

    async def resume(self) -> None:
        """Go on with what earlier runs have left. Raises StorageError."""
        self.remove_later(
            [
                (json.loads(entry.value)["name"], parse_id(entry.key.removeprefix(DELETED)))
                for entry in (await self._store.range(DELETED)).entries
            ]
        )

    def remove_later(self, topics: Sequence[Named]) -> None:
        """Begin to remove the files of topics that are marked."""
        if topics and not self._is_stopping:
            spawn(self._remove(topics), "topic removal", among=self._removals)

    async def finish(self) -> None:
        """Wait for the removals under way."""
        while self._removals:
            await asyncio.wait(self._removals)

    async def stop(self) -> None:
        """End the removals under way soon; the next start goes on with them."""
        self._is_stopping = True
        await self.finish()

    async def _remove(self, topics: Sequence[Named]) -> None:
        """Remove deleted topics' files; what fails or is offline is left to the next start."""
        for start in range(0, len(topics), BATCH_TOPICS):
            if not self._is_stopping:
                await self._remove_some(topics[start : start + BATCH_TOPICS])

    async def _remove_some(self, topics: Sequence[Named]) -> None:
        online = [each for each in self._directories if each.offline_reason is None]
        try:
            for directory in online:
                await self._administration.run(self._remove_from, directory, topics)
            if self._has_all_directories and len(online) == len(self._directories):
                forgotten = [
                    Delete(key=DELETED + topic_id_text(topic_id)) for _, topic_id in topics
                ]
                await self._store.txn((), forgotten)
        except StorageError as error:
            names = ", ".join(name for name, _ in topics)
            _log.warning("%s: not all files could be removed yet: %s", names, error)

    def _remove_from(self, directory: LogDirectory, topics: Sequence[Named]) -> None:
        directory.delete_topics(topics)
        # The store forgets the topics next: nobody would remove files that came back after a crash.
        self._files.sync_directory(directory.path)

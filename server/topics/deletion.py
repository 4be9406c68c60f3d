"""Deletes topics: from the store first, then their files in the background, many topics at a time.

    1  the store: the topics are gone, and may have files left
    2  the files, in every directory that is in service
    3  the store forgets them, once no directory can have any of their files

A removal that did not complete continues at the next start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Sequence

from server.metadata.store import Delete, MetadataStore, Put
from server.runtime.executors import Executor
from server.runtime.tasks import spawn
from server.topics.keys import CREATING, DELETED, TOPICS, UNSETTLED
from server.topics.names import parse_id
from server.topics.topic import Topic
from storage.files.errors import StorageError
from storage.files.files import FileSystem
from storage.files.paths import topic_id_text
from storage.log.directory import LogDirectory
from storage.threads import any_thread, loop_thread

_log = logging.getLogger("server.topics.topics")

BATCH_TOPICS = 200
"""The most topics in one transaction; a removal checks for a stop after each batch."""

DeletedTopic = tuple[str, uuid.UUID]
"""The name and id of a deleted topic."""


@loop_thread
class TopicDeletion:
    """Deletes topics from the store and the directories; only `Topics` calls it."""

    __slots__ = (
        "_directories", "_executor", "_files", "_has_all_directories", "_is_stopping", "_removals",
        "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        executor: Executor,
        *,
        files: FileSystem,
        has_all_directories: bool,
    ) -> None:
        # Constant after construction
        self._store = store
        self._directories = directories
        self._executor = executor
        self._files = files
        self._has_all_directories = has_all_directories
        # State
        self._removals: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def mark(self, topics: Sequence[Topic]) -> None:
        """Mark topics as deleted in the store; durable when this returns. Raises StorageError."""
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
        """Continue the removals that earlier runs have not completed. Raises StorageError."""
        self.remove_later(
            [
                (json.loads(entry.value)["name"], parse_id(entry.key.removeprefix(DELETED)))
                for entry in (await self._store.range(DELETED)).entries
            ]
        )

    def remove_later(self, topics: Sequence[DeletedTopic]) -> None:
        """Start to remove the files of topics that are marked as deleted."""
        if topics and not self._is_stopping:
            spawn(self._remove(topics), "topic removal", among=self._removals)

    async def finish(self) -> None:
        """Wait until all running removals have ended."""
        while self._removals:
            await asyncio.wait(self._removals)

    async def stop(self) -> None:
        """End the running removals soon; the next start continues them."""
        self._is_stopping = True
        await self.finish()

    async def _remove(self, topics: Sequence[DeletedTopic]) -> None:
        """Remove deleted topics' files; leave those that fail, or are offline, to the next start."""
        for start in range(0, len(topics), BATCH_TOPICS):
            if not self._is_stopping:
                await self._remove_some(topics[start : start + BATCH_TOPICS])

    async def _remove_some(self, topics: Sequence[DeletedTopic]) -> None:
        online = [each for each in self._directories if each.offline_reason is None]
        try:
            for directory in online:
                await self._executor.run(self._remove_from, directory, topics)
            if self._has_all_directories and len(online) == len(self._directories):
                forgotten = [
                    Delete(key=DELETED + topic_id_text(topic_id)) for _, topic_id in topics
                ]
                await self._store.txn((), forgotten)
        except StorageError as error:
            names = ", ".join(name for name, _ in topics)
            _log.warning("%s: could not remove all files yet: %s", names, error)

    @any_thread
    def _remove_from(self, directory: LogDirectory, topics: Sequence[DeletedTopic]) -> None:
        directory.delete_topics(topics)
        # The store forgets the topics next, so files that a crash brings back would never be removed.
        self._files.sync_directory(directory.path)

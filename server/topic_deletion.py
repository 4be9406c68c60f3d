"""Deletes topics: the store first, then their files in the background.

    1  the store: the topic is gone, and may have files left
    2  the files, of every directory that is in service
    3  the store forgets it, once no directory can have any of its files

What does not come to its end goes on at the next start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Sequence

from server.metadata_store import Delete, MetadataStore, Put
from server.tasks import spawn
from server.topic import Topic
from server.topic_keys import CREATING, DELETED, TOPICS
from server.topic_names import parse_id
from storage.errors import StorageError
from storage.files import FileSystem
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text

_log = logging.getLogger("server.topics")


class TopicDeletion:
    """Changes store and directories; `Topics`, which owns the topics, calls it. On the event loop."""

    __slots__ = ("_directories", "_files", "_has_all_directories", "_removals", "_store")

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        *,
        files: FileSystem,
        has_all_directories: bool,
    ) -> None:
        # Constant after construction
        self._store = store
        self._directories = directories
        self._files = files
        self._has_all_directories = has_all_directories
        # State
        self._removals: set[asyncio.Task[None]] = set()

    async def mark(self, topic: Topic) -> None:
        """Let the topic be gone; durable when this returns. Raises StorageError."""
        await self._store.txn(
            (),
            [
                Delete(key=TOPICS + topic.name),
                Delete(key=CREATING + topic_id_text(topic.id)),
                Put(key=DELETED + topic_id_text(topic.id), value=json.dumps({"name": topic.name})),
            ],
        )

    async def resume(self) -> None:
        """Go on with what earlier runs have left. Raises StorageError."""
        for entry in (await self._store.range(DELETED)).entries:
            topic_id = parse_id(entry.key.removeprefix(DELETED))
            self.remove_later(json.loads(entry.value)["name"], topic_id)

    def remove_later(self, name: str, topic_id: uuid.UUID) -> None:
        """Begin to remove the files of a topic that is marked."""
        spawn(self._remove(name, topic_id), "topic removal", among=self._removals)

    async def finish(self) -> None:
        """Wait for the removals under way."""
        while self._removals:
            await asyncio.wait(self._removals)

    async def _remove(self, name: str, topic_id: uuid.UUID) -> None:
        """Remove a deleted topic's files; what fails or is offline is left to the next start."""
        online = [each for each in self._directories if each.offline_reason is None]
        try:
            for directory in online:
                await asyncio.to_thread(self._remove_from, directory, name, topic_id)
            if self._has_all_directories and len(online) == len(self._directories):
                await self._store.txn((), [Delete(key=DELETED + topic_id_text(topic_id))])
        except StorageError as error:
            _log.warning("%s: not all of its files could be removed yet: %s", name, error)

    def _remove_from(self, directory: LogDirectory, name: str, topic_id: uuid.UUID) -> None:
        directory.delete_topic(name, topic_id)
        # The store forgets the topic next: nobody would remove files that came back after a crash.
        self._files.sync_directory(directory.path)

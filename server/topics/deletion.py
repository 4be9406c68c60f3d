"""Deletes topics: from the stores first, then their files in the background, many topics at a time.

    1  the node's store: their deletion has begun
    2  the cluster's store: the topics are gone
       <- the request is answered
    3  the files, in every directory that is in service
    4  the node's store forgets them, once no directory can have any of their files

A topic that is put aside goes the same way, but in step 3 its directories only get another name, and the
caller waits for that. The same topic may come back, with its id: it is not created before step 4.

Only a topic of step 1 that is not in the cluster's store loses its files. Without step 1, a cluster's
store that was restored from an old backup would cost the files of all newer topics. A crash before
step 2 leaves the topic as it was. A removal that did not complete continues at the next start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Collection, Sequence

from server.metadata.store import Delete, MetadataStore, Put
from server.runtime.executors import Executor
from server.runtime.tasks import spawn
from server.topics.keys import DELETED, PLACED, PUT_ASIDE, TOPICS, UNSETTLED, as_json
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
Work = Callable[[LogDirectory, Sequence[DeletedTopic]], None]
"""What is done with the files of topics in one directory."""


@loop_thread
class TopicDeletion:
    """Deletes topics from the store and the directories; only `Topics` calls it."""

    __slots__ = (
        "_administration", "_directories", "_executor", "_files", "_has_all_directories",
        "_is_stopping", "_node_store", "_removals", "_store", "_unfinished",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        node_store: MetadataStore,
        directories: Sequence[LogDirectory],
        executor: Executor,
        *,
        administration: Executor,
        files: FileSystem,
        has_all_directories: bool,
    ) -> None:
        """
        Args:
            executor: the threads that remove files; a removal may take minutes.
            administration: the threads that rename directories.
        """
        # Constant after construction
        self._store = store
        self._node_store = node_store
        self._directories = directories
        self._executor = executor
        self._administration = administration
        self._files = files
        self._has_all_directories = has_all_directories
        # State
        self._removals: set[asyncio.Task[None]] = set()
        self._unfinished: set[uuid.UUID] = set()
        """Topics of which a directory may have files under their old name."""
        self._is_stopping = False

    async def mark(self, topics: Sequence[Topic], *, keeps_files: bool = False) -> None:
        """Delete topics from the cluster's store; durable when this returns. Raises StorageError.

        Args:
            keeps_files: whether they are put aside.
        """
        prefix = PUT_ASIDE if keeps_files else DELETED
        notes = [
            Put(key=prefix + topic_id_text(topic.id), value=as_json({"name": topic.name}))
            for topic in topics
        ]
        await self._node_store.txn((), notes)
        await self._store.txn((), [Delete(key=TOPICS + topic.name) for topic in topics])

    async def resume(self, kept: Collection[uuid.UUID]) -> None:
        """Continue the removals that earlier runs have not completed.

        Args:
            kept: ids of topics that are in the cluster's store.

        Raises:
            StorageError: the store failed.
        """
        for prefix in (DELETED, PUT_ASIDE):
            noted = [
                (json.loads(entry.value)["name"], parse_id(entry.key.removeprefix(prefix)))
                for entry in (await self._node_store.range(prefix)).entries
            ]
            topics = [(name, topic_id) for name, topic_id in noted if topic_id not in kept]
            if prefix == PUT_ASIDE:
                await self.put_aside(topics)
            else:
                self.remove_later(topics)

    def remove_later(self, topics: Sequence[DeletedTopic]) -> None:
        """Start to remove the files of deleted topics."""
        self._start(topics, self._remove_from, self._executor)

    async def put_aside(self, topics: Sequence[DeletedTopic]) -> None:
        """Rename the directories of topics that are marked so. What fails is logged, and the next start
        tries it again."""
        task = self._start(topics, self._put_aside_in, self._administration)
        if task is not None:
            await asyncio.wait([task])

    def is_unfinished(self, topic_id: uuid.UUID) -> bool:
        """Returns whether a directory may still have files of a topic that is gone. If it were created
        again now, they would be taken for the new one's, and its own for theirs."""
        return topic_id in self._unfinished

    def _start(
        self, topics: Sequence[DeletedTopic], work: Work, executor: Executor
    ) -> asyncio.Task[None] | None:
        self._unfinished |= {topic_id for _, topic_id in topics}
        if not topics or self._is_stopping:
            return None
        return spawn(self._remove(topics, work, executor), "topic removal", among=self._removals)

    async def finish(self) -> None:
        """Wait until all running removals have ended."""
        while self._removals:
            await asyncio.wait(self._removals)

    async def stop(self) -> None:
        """End the running removals soon; the next start continues them."""
        self._is_stopping = True
        await self.finish()

    async def _remove(self, topics: Sequence[DeletedTopic], work: Work, executor: Executor) -> None:
        """Remove, or rename, topics' files; leave those that fail, or are offline, to the next start."""
        for start in range(0, len(topics), BATCH_TOPICS):
            if not self._is_stopping:
                await self._remove_some(topics[start : start + BATCH_TOPICS], work, executor)

    async def _remove_some(
        self, topics: Sequence[DeletedTopic], work: Work, executor: Executor
    ) -> None:
        online = [each for each in self._directories if each.offline_reason is None]
        try:
            for directory in online:
                await executor.run(work, directory, topics)
            if self._has_all_directories and len(online) == len(self._directories):
                await self._forget([topic_id_text(topic_id) for _, topic_id in topics])
                self._unfinished -= {topic_id for _, topic_id in topics}
        except StorageError as error:
            names = ", ".join(name for name, _ in topics)
            _log.warning("%s: could not remove, or put aside, all files yet: %s", names, error)

    async def _forget(self, topic_ids: Sequence[str]) -> None:
        operations: list[Delete] = []
        for topic_id in topic_ids:
            unsettled = (await self._node_store.range(f"{UNSETTLED}{topic_id}/")).entries
            keys = [prefix + topic_id for prefix in (PLACED, DELETED, PUT_ASIDE)]
            operations += [Delete(key=key) for key in (*keys, *(entry.key for entry in unsettled))]
        await self._node_store.txn((), operations)

    @any_thread
    def _remove_from(self, directory: LogDirectory, topics: Sequence[DeletedTopic]) -> None:
        directory.delete_topics(topics)
        # The store forgets the topics next, so files that a crash brings back would never be removed.
        self._files.sync_directory(directory.path)

    @any_thread
    def _put_aside_in(self, directory: LogDirectory, topics: Sequence[DeletedTopic]) -> None:
        for topic in topics:
            for path in directory.put_topics_aside([topic]):
                text = "%s: no longer a topic's; remove it when nobody needs its records"
                _log.warning(text, path)

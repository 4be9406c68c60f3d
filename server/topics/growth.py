"""Adds partitions to a topic: all of them or none, despite crashes and failing disks.

    1  the store: where the new logs will be, and that they are not acknowledged yet
    2  the logs, unsynced
    3  the store: the logs exist, but may not survive a crash until they are settled

After a crash before step 3, the next start creates the logs again. A failure undoes step 1.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from cleaner.rules.text import count_text
from server.metadata.store import Delete, MetadataStore, Put
from server.runtime.executors import Executor
from server.topics.files import (
    OperationInterrupted,
    create_logs,
    refuse_strays,
    remove_added,
    spread,
)
from server.topics.keys import CREATING, TOPICS, as_json, unsettled_key
from server.topics.settling import TopicSettling, Unsettled
from server.topics.topic import Topic, TopicRefused
from storage.files.errors import StorageError
from storage.files.paths import topic_id_text
from storage.log.directory import LogDirectory

_log = logging.getLogger("server.topics.topics")


class TopicGrowth:
    """Changes the store and the directories; `Topics` calls it, once at a time for each topic."""

    __slots__ = (
        "_administration", "_directories", "_has_all_directories", "_is_stopping", "_settling",
        "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
        settling: TopicSettling,
        *,
        has_all_directories: bool,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._directories = directories
        self._administration = administration
        self._settling = settling
        self._is_stopping = is_stopping
        self._has_all_directories = has_all_directories

    async def grow(self, topic: Topic, grown: Topic) -> Topic | TopicRefused:
        """Create the logs of the planned partitions of `grown`; durable when this returns.

        Raises:
            StorageError: the store failed; the next start finds out which steps took effect.
        """
        if self._is_stopping():
            return TopicRefused.by_stop()
        first = len(topic.partitions)
        count = len(grown.partitions) - first
        directories = await self._administration.run(spread, self._directories, count)
        if not directories:
            return TopicRefused.by_disk("all log directories are offline")
        try:
            await self._clear_for_new_logs(topic)
        except StorageError as error:
            return TopicRefused.by_disk(str(error))
        await self._write_planned(topic, [each.directory_id for each in directories])
        try:
            grown = await self._administration.run(
                create_logs, grown, directories, is_stopping=self._is_stopping
            )
            await self._acknowledge(grown, first)
        except OperationInterrupted:
            await self._write_planned(topic, [])
            return TopicRefused.by_stop()
        except StorageError as error:
            _log.error("%s: could not add partitions: %s", topic.name, error)
            await self.undo(topic)
            return TopicRefused.by_disk(str(error))
        _log.info("%s: %s added", topic.name, count_text(count, "partition"))
        return grown

    async def _acknowledge(self, grown: Topic, first: int) -> None:
        """Write that the logs from `first` on exist, and start to settle them."""
        key = unsettled_key(grown, first)
        creating = CREATING + topic_id_text(grown.id)
        await self._store.txn((), [Delete(key=creating), Put(key=key, value="")])
        logs = [log for log in grown.logs() if log.topic_partition.partition >= first]
        self._settling.settle_later([Unsettled(key, tuple(logs))])

    async def _clear_for_new_logs(self, topic: Topic) -> None:
        """Remove the remains of a failed attempt to add partitions; raise if there are other files."""
        attempted = await self._store.get(CREATING + topic_id_text(topic.id))
        if attempted is None:
            await self._administration.run(refuse_strays, topic, self._directories)
        else:
            await self._administration.run(remove_added, topic, self._directories)

    async def undo(self, topic: Topic) -> None:
        """Undo the addition of partitions that was not acknowledged.

        The store is changed first: even if the disk fails then, no partition in the store loses its
        files. Files that cannot be removed are left to the next start.

        Args:
            topic: the topic as it was before.
        """
        await self._write_planned(topic, [])
        try:
            await self._administration.run(remove_added, topic, self._directories)
            if self._has_all_directories:
                await self._store.txn((), [Delete(key=CREATING + topic_id_text(topic.id))])
        except StorageError as error:
            _log.warning("%s: could not remove added partitions yet: %s", topic.name, error)

    async def _write_planned(self, topic: Topic, directory_ids: Sequence[str]) -> None:
        """Write the directories of partitions to add, and that these are not acknowledged yet."""
        key, count = TOPICS + topic.name, len(topic.partitions)
        entry = await self._store.get(key)
        assert entry is not None, "only this class creates and deletes topics"
        content = json.loads(entry.value)
        held = content["partitions"][:count] + list(directory_ids)
        await self._store.txn(
            (),
            [
                Put(key=key, value=as_json(content | {"partitions": held})),
                Put(key=CREATING + topic_id_text(topic.id), value=str(count)),
            ],
        )

"""Adds partitions to a topic: all of them or none, over crashes and failing disks.

    1  the store: where the new logs will be, and that nobody was told of them yet
    2  the logs, none of which is synced
    3  the store: they are there, but may not survive a crash until they are settled

A crash before the last step makes the logs anew at the next start; a failure takes the first step back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence

from cleaner.text import count_text
from server.executors import Executor
from server.metadata_store import Delete, MetadataStore, Put
from server.topic import Topic, TopicRefused
from server.topic_files import (
    OperationCutShort,
    create_logs,
    refuse_strays,
    remove_added,
    spread,
)
from server.topic_keys import CREATING, TOPICS, as_json, unsettled_key
from server.topic_settling import TopicSettling, Unsettled
from storage.errors import StorageError
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text

_log = logging.getLogger("server.topics")


class TopicGrowth:
    """Changes store and directories; `Topics` calls it, for each topic once at a time."""

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
        """Make the logs of those partitions of `grown` that have none yet; durable when it returns.

        Raises:
            StorageError: the store failed, and the next start finds out how far this has come.
        """
        if self._is_stopping():
            return TopicRefused.by_stop()
        first = len(topic.partitions)
        count = len(grown.partitions) - first
        directories = await self._administration.run(spread, self._directories, count)
        if not directories:
            return TopicRefused.by_disk("all log directories are offline")
        try:
            await self._clear(topic)
        except StorageError as error:
            return TopicRefused.by_disk(str(error))
        await self._note(topic, [each.directory_id for each in directories])
        try:
            grown = await self._administration.run(
                create_logs, grown, directories, is_stopping=self._is_stopping
            )
            await self._acknowledge(grown, first)
        except OperationCutShort:
            await self._note(topic, [])
            return TopicRefused.by_stop()
        except StorageError as error:
            _log.error("%s: partitions cannot be added: %s", topic.name, error)
            await self.undo(topic)
            return TopicRefused.by_disk(str(error))
        _log.info("%s: %s added", topic.name, count_text(count, "partition"))
        return grown

    async def _acknowledge(self, grown: Topic, first: int) -> None:
        """Write that the logs from `first` on are there from now on, and begin to settle them."""
        key = unsettled_key(grown, first)
        creating = CREATING + topic_id_text(grown.id)
        await self._store.txn((), [Delete(key=creating), Put(key=key, value="")])
        logs = [log for log in grown.logs() if log.topic_partition.partition >= first]
        self._settling.settle_later([Unsettled(key, tuple(logs))])

    async def _clear(self, topic: Topic) -> None:
        """Have no files where the new logs shall be: remains of an attempt that failed may go."""
        attempted = await self._store.get(CREATING + topic_id_text(topic.id))
        if attempted is None:
            await self._administration.run(refuse_strays, topic, self._directories)
        else:
            await self._administration.run(remove_added, topic, self._directories)

    async def undo(self, topic: Topic) -> None:
        """Take back partitions that nobody was told of; `topic` is as it was before.

        The store goes first: whatever becomes of the disk then, no partition that the store knows
        loses its files. What cannot be removed is left to the next start.
        """
        await self._note(topic, [])
        try:
            await self._administration.run(remove_added, topic, self._directories)
            if self._has_all_directories:
                await self._store.txn((), [Delete(key=CREATING + topic_id_text(topic.id))])
        except StorageError as error:
            _log.warning("%s: added partitions cannot be removed yet: %s", topic.name, error)

    async def _note(self, topic: Topic, directory_ids: Sequence[str]) -> None:
        """Write where logs are added to the topic's, and that nobody was told of them yet."""
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

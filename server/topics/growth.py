"""Adds partitions to a topic: all of them or none, despite crashes and failing disks.

    1  the node's store: where the new logs will be, and that they may be missing until they are settled
    2  the logs, unsynced
    3  the cluster's store: the topic has these partitions

After a crash before step 3, the next start removes the logs. A failure undoes steps 2 and 1.
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
from server.topics.keys import (
    NOT_KNOWN,
    TOPICS,
    as_json,
    placed_json,
    placed_key,
    placement,
    unsettled_key,
)
from server.topics.settling import TopicSettling, Unsettled
from server.topics.topic import Topic, TopicRefused
from storage.files.errors import NoSpace, StorageError
from storage.log.directory import LogDirectory

_log = logging.getLogger("server.topics.topics")


class TopicGrowth:
    """Changes the store and the directories; `Topics` calls it, once at a time for each topic."""

    __slots__ = (
        "_administration", "_directories", "_is_stopping", "_node_store", "_settling", "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        node_store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
        settling: TopicSettling,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._node_store = node_store
        self._directories = directories
        self._administration = administration
        self._settling = settling
        self._is_stopping = is_stopping

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
        await self._place(topic, [each.directory_id for each in directories])
        try:
            grown = await self._administration.run(
                create_logs, grown, directories, is_stopping=self._is_stopping
            )
        except OperationInterrupted:
            await self._undo(topic)
            return TopicRefused.by_stop()
        except StorageError as error:
            _log.error("%s: could not add partitions: %s", topic.name, error)
            await self._undo(topic)
            return TopicRefused.by_disk(str(error))
        try:
            await self._acknowledge(grown, first)
        except NoSpace as error:
            # The store has not changed. After other errors that is not known, so nothing is removed.
            await self._undo(topic)
            return TopicRefused.by_disk(str(error))
        _log.info("%s: %s added", topic.name, count_text(count, "partition"))
        return grown

    async def _place(self, topic: Topic, directory_ids: Sequence[str]) -> None:
        """Write where the logs of added partitions will be, and that they may be missing."""
        holders = await self._holders(topic)
        operations = [
            Put(key=placed_key(topic), value=placed_json(topic.name, [*holders, *directory_ids])),
            Put(key=unsettled_key(topic, len(holders)), value=""),
        ]
        await self._node_store.txn((), operations)

    async def _holders(self, topic: Topic) -> list[str]:
        """Returns the directory of each partition that the topic has."""
        entry = await self._node_store.get(placed_key(topic))
        holders = placement(entry.value)[1] if entry is not None else []
        count = len(topic.partitions)
        return [*holders[:count], *[NOT_KNOWN] * (count - len(holders))]

    async def _acknowledge(self, grown: Topic, first: int) -> None:
        """Write that the topic has the partitions, and start to settle their logs."""
        entry = await self._store.get(TOPICS + grown.name)
        assert entry is not None, "only `Topics` creates and deletes topics"
        content = json.loads(entry.value) | {"partitions": len(grown.partitions)}
        await self._store.txn((), [Put(key=entry.key, value=as_json(content))])
        logs = [log for log in grown.logs() if log.topic_partition.partition >= first]
        self._settling.settle_later([Unsettled(unsettled_key(grown, first), tuple(logs))])

    async def _clear_for_new_logs(self, topic: Topic) -> None:
        """Remove the remains of a failed attempt to add partitions.

        Raises:
            StorageError: there are other files, or a directory that may have remains is not in service.
        """
        entry = await self._node_store.get(placed_key(topic))
        attempted = placement(entry.value)[1][len(topic.partitions) :] if entry is not None else []
        away = {*attempted} - {NOT_KNOWN} - {each.directory_id for each in self._directories}
        if away:
            text = "an earlier attempt to add partitions has left logs in the log directory"
            raise StorageError(f"{text} {min(away)}, which is not in service")
        clear = remove_added if attempted else refuse_strays
        await self._administration.run(clear, topic, self._directories)

    async def _undo(self, topic: Topic) -> None:
        """Remove the logs of partitions that were not acknowledged, then forget where they are.

        What cannot be removed is left to the next start.

        Args:
            topic: the topic as it was before.
        """
        try:
            await self._administration.run(remove_added, topic, self._directories)
            holders = await self._holders(topic)
            operations: list[Put | Delete] = [
                Put(key=placed_key(topic), value=placed_json(topic.name, holders)),
                Delete(key=unsettled_key(topic, len(holders))),
            ]
            await self._node_store.txn((), operations)
        except StorageError as error:
            _log.warning("%s: could not remove added partitions yet: %s", topic.name, error)

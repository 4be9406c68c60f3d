"""Creates topics, many at a time.

    1  the node's store: the logs will be in these directories, and may be missing until they are settled
    2  the cluster's store: the topics exist; one transaction for a whole batch, as in step 1
    3  the logs in memory, without files

`settling.py` creates the files later, or each log's first write does. After a crash, the next start
creates the missing ones, or forgets step 1 if step 2 did not follow (`reconciliation.py`). A topic whose
logs cannot be planned, because a directory is out of service or the broker stops, is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from cleaner.rules.text import count_text
from protocol.wire.error_codes import ErrorCode
from server.metadata.store import Compare, Delete, MetadataStore, Put
from server.runtime.executors import Executor
from server.topics.deletion import TopicDeletion
from server.topics.files import OperationInterrupted, plan_each, spread
from server.topics.keys import TOPICS, placed_json, placed_key, topic_value, unsettled_key
from server.topics.settling import TopicSettling, Unsettled
from server.topics.topic import Topic, TopicRefused
from storage.files.errors import StorageError
from storage.log.directory import LogDirectory

_log = logging.getLogger("server.topics.topics")

BATCH_TOPICS = 200
"""The most topics in one transaction; applying it takes the loop a millisecond or two."""
BATCH_PARTITIONS = 2_000
"""The most partitions in a batch of more than one topic."""


def batches(planned: Sequence[Topic]) -> Iterator[list[Topic]]:
    """Yields the topics in batches; a topic with very many partitions is a batch by itself."""
    batch: list[Topic] = []
    partitions = 0
    for topic in planned:
        partitions += len(topic.partitions)
        if batch and (len(batch) == BATCH_TOPICS or partitions > BATCH_PARTITIONS):
            yield batch
            batch, partitions = [], len(topic.partitions)
        batch.append(topic)
    if batch:
        yield batch


class TopicCreation:
    """Creates topics in the store and in memory; only `Topics` calls it."""

    __slots__ = (
        "_administration", "_deletion", "_directories", "_is_stopping", "_node_store", "_settling",
        "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        node_store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
        deletion: TopicDeletion,
        settling: TopicSettling,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._node_store = node_store
        self._directories = directories
        self._administration = administration
        self._deletion = deletion
        self._settling = settling
        self._is_stopping = is_stopping

    async def create(self, planned: Sequence[Topic]) -> list[Topic | TopicRefused]:
        """Create planned topics. Returns each topic with its logs, or why it is refused.

        Raises:
            StorageError: the store failed; the next start finds out which steps took effect.
        """
        if self._is_stopping():
            return [TopicRefused.by_stop()] * len(planned)
        places = await self._administration.run(self._places, planned)
        if not all(places):
            return [TopicRefused.by_disk("all log directories are offline")] * len(planned)
        await self._place(planned, places)
        if not await self._write_planned(planned):
            await self._unplace(planned)
            # Another broker has created one of the topics meanwhile: find out which.
            if len(planned) > 1:
                return [(await self.create([topic]))[0] for topic in planned]
            return [_exists(planned[0].name)]
        made = await self._administration.run(
            plan_each, planned, places, is_stopping=self._is_stopping
        )
        self._settle_later([topic for topic in made if isinstance(topic, Topic)])
        failed = {
            topic.name: error
            for topic, error in zip(planned, made, strict=True)
            if isinstance(error, StorageError)
        }
        await self._undo([topic for topic in planned if topic.name in failed])
        return [each if isinstance(each, Topic) else _refusal(each) for each in made]

    def _places(self, planned: Sequence[Topic]) -> list[list[LogDirectory]]:
        counts = [len(topic.partitions) for topic in planned]
        places = iter(spread(self._directories, sum(counts)))
        return [[place for _, place in zip(range(count), places, strict=False)] for count in counts]

    async def _place(self, planned: Sequence[Topic], places: Sequence[list[LogDirectory]]) -> None:
        """Write where the logs will be, and that they may be missing."""
        operations: list[Put | Delete] = []
        for topic, its_places in zip(planned, places, strict=True):
            holders = [directory.directory_id for directory in its_places]
            operations.append(Put(key=placed_key(topic), value=placed_json(topic.name, holders)))
            operations.append(Put(key=unsettled_key(topic, 0), value=""))
        await self._node_store.txn((), operations)

    async def _unplace(self, planned: Sequence[Topic]) -> None:
        keys = [key for topic in planned for key in (placed_key(topic), unsettled_key(topic, 0))]
        await self._node_store.txn((), [Delete(key=key) for key in keys])

    async def _write_planned(self, planned: Sequence[Topic]) -> bool:
        """Write the topics. Returns False if one exists."""
        operations = [
            Put(
                key=TOPICS + topic.name,
                value=topic_value(topic.id, len(topic.partitions), topic.overrides),
            )
            for topic in planned
        ]
        compares = [Compare(key=TOPICS + topic.name, mod_revision=0) for topic in planned]
        return (await self._store.txn(compares, operations)).succeeded

    def _settle_later(self, topics: Sequence[Topic]) -> None:
        if not topics:
            return
        self._settling.settle_later(
            [Unsettled(unsettled_key(topic, 0), tuple(topic.logs())) for topic in topics]
        )
        if len(topics) == 1:
            count = count_text(len(topics[0].partitions), "partition")
            _log.info("%s: created with %s", topics[0].name, count)
        else:
            names = ", ".join(topic.name for topic in topics)
            _log.info("%s created: %s", count_text(len(topics), "topic"), names)

    async def _undo(self, failed: Sequence[Topic]) -> None:
        """Delete topics whose logs could not all be planned."""
        if failed:
            await self._deletion.mark(failed)
            self._deletion.remove_later([(topic.name, topic.id) for topic in failed])


def _refusal(error: StorageError) -> TopicRefused:
    return (
        TopicRefused.by_stop()
        if isinstance(error, OperationInterrupted)
        else TopicRefused.by_disk(str(error))
    )


def _exists(name: str) -> TopicRefused:
    text = f"Topic '{name}' already exists."
    return TopicRefused(error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message=text)

"""Makes the logs of new topics, many topics at a time.

    1  the store: the topics and where their logs will be, and that nobody was told of them yet
    2  the logs, none of which is synced
    3  the store: they are there, but may not survive a crash until they are settled

Steps 1 and 3 are one transaction each for a whole batch; `topic_settling.py` does the syncs later. A
crash before step 3 makes the logs anew at the next start. A topic whose logs cannot be made is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from cleaner.text import count_text
from protocol.error_codes import ErrorCode
from server.executors import Executor
from server.metadata_store import Compare, Delete, MetadataStore, Put
from server.topic import Topic, TopicRefused
from server.topic_deletion import TopicDeletion
from server.topic_files import OperationCutShort, create_each, spread
from server.topic_keys import CREATING, TOPICS, topic_json, unsettled_key
from server.topic_settling import TopicSettling, Unsettled
from storage.errors import StorageError
from storage.log_directory import LogDirectory
from storage.paths import topic_id_text

_log = logging.getLogger("server.topics")

BATCH_TOPICS = 200
"""So many topics are one transaction: the loop takes a millisecond or two to show it."""
BATCH_PARTITIONS = 2_000


def batches(planned: Sequence[Topic]) -> Iterator[list[Topic]]:
    """The topics in groups that are each made at once; a large one is alone."""
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


class TopicMaking:
    """Changes store and directories; `Topics`, which owns the topics, calls it."""

    __slots__ = (
        "_administration", "_deletion", "_directories", "_is_stopping", "_settling", "_store",
    )  # fmt: skip

    def __init__(
        self,
        store: MetadataStore,
        directories: Sequence[LogDirectory],
        administration: Executor,
        deletion: TopicDeletion,
        settling: TopicSettling,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._directories = directories
        self._administration = administration
        self._deletion = deletion
        self._settling = settling
        self._is_stopping = is_stopping

    async def make(self, planned: Sequence[Topic]) -> list[Topic | TopicRefused]:
        """Make the logs of topics that were checked; each topic with them, or why it is not there.

        Raises:
            StorageError: the store failed, and the next start finds out how far this has come.
        """
        if self._is_stopping():
            return [TopicRefused.by_stop()] * len(planned)
        places = await self._administration.run(self._places, planned)
        if not all(places):
            return [TopicRefused.by_disk("all log directories are offline")] * len(planned)
        if not await self._note(planned, places):
            # Another broker was faster with one of them: find out with which.
            if len(planned) > 1:
                return [(await self.make([topic]))[0] for topic in planned]
            return [_exists(planned[0].name)]
        made = await self._administration.run(
            create_each, planned, places, is_stopping=self._is_stopping
        )
        topics = [topic for topic in made if isinstance(topic, Topic)]
        await self._acknowledge(topics)
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

    async def _note(self, planned: Sequence[Topic], places: Sequence[list[LogDirectory]]) -> bool:
        """Write the topics, and that nobody was told of them; False if one of them exists."""
        operations: list[Put | Delete] = []
        for topic, its_places in zip(planned, places, strict=True):
            operations.append(Put(key=TOPICS + topic.name, value=topic_json(topic, its_places)))
            operations.append(Put(key=CREATING + topic_id_text(topic.id), value=""))
        compares = [Compare(key=TOPICS + topic.name, mod_revision=0) for topic in planned]
        return (await self._store.txn(compares, operations)).succeeded

    async def _acknowledge(self, topics: Sequence[Topic]) -> None:
        """Write that the topics are there from now on, and begin to settle them."""
        if not topics:
            return
        operations: list[Put | Delete] = []
        for topic in topics:
            operations.append(Delete(key=CREATING + topic_id_text(topic.id)))
            operations.append(Put(key=unsettled_key(topic, 0), value=""))
        await self._store.txn((), operations)
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
        """Take back topics whose logs could not all be made."""
        if failed:
            await self._deletion.mark(failed)
            self._deletion.remove_later([(topic.name, topic.id) for topic in failed])


def _refusal(error: StorageError) -> TopicRefused:
    return (
        TopicRefused.by_stop()
        if isinstance(error, OperationCutShort)
        else TopicRefused.by_disk(str(error))
    )


def _exists(name: str) -> TopicRefused:
    text = f"Topic '{name}' already exists."
    return TopicRefused(error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message=text)

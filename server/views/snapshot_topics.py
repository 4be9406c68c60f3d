"""The topics in snapshots that clients can read: knows all of them, and opens those that are asked for.

At most `OPEN_MAX` of them are open. If one more is opened, the one that was opened first is closed; a
client that still reads it gets NOT_LEADER_OR_FOLLOWER, asks for metadata, and so opens it again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from server.runtime.executors import Executor
from server.runtime.tasks import to_its_end
from server.topics.computed_configs import TopicConfigs
from server.topics.keys import TOPICS
from server.topics.topic import INTERNAL_TOPICS, OfflineLog
from server.views.snapshot_topic import (
    NOT_OPEN,
    SnapshotTopic,
    snapshot_in,
    snapshot_topic_name,
)
from storage.files.errors import StorageError
from storage.files.paths import join, topic_id_of
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.directory import LogDirectory
from storage.log.log import PartitionLog
from storage.snapshots.descriptor import PartitionInSnapshot, SnapshotDescriptor, TopicInSnapshot
from storage.snapshots.snapshot_files import snapshot_path
from storage.threads import any_thread, loop_thread

OPEN_MAX = 100

_log = logging.getLogger("server.views.snapshot_topics")

Logs = tuple[PartitionLog | OfflineLog, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """A topic in a snapshot."""

    closed: SnapshotTopic
    """The topic while its logs are not open."""
    described: TopicInSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSnapshot:
    """The topics in one snapshot."""

    topics: Mapping[str, _Known]
    """By their names."""
    names: Mapping[uuid.UUID, str]
    """By their ids."""


@loop_thread
class SnapshotTopics:
    """The topics in all snapshots of a broker, and the logs of those that are open."""

    __slots__ = (
        "_configs", "_directories", "_known", "_lock", "_open", "_thread", "revision",
    )  # fmt: skip

    def __init__(
        self, directories: Sequence[LogDirectory], defaults: LogConfig, *, thread: Executor
    ) -> None:
        """
        Args:
            directories: the log directories in service.
            defaults: of the configurations of topics.
            thread: opens logs.
        """
        # Constant after construction
        self._directories = {each.directory_id: each for each in directories}
        self._configs = TopicConfigs(defaults)
        self._thread = thread
        self._lock = asyncio.Lock()
        """Held while the logs of a topic are opened."""
        # State
        self._known: dict[str, _OfSnapshot] = {}
        """By the ids of the snapshots."""
        self._open: dict[str, SnapshotTopic] = {}
        """In the order in which they were opened."""
        self.revision = 0
        """Grows when a snapshot is made or dropped."""

    # ---------------------------------------------------------------- the topics

    @any_thread
    def get(self, name: str) -> SnapshotTopic | None:
        """Returns a topic in a snapshot, open or not."""
        known = self._find(name)
        return None if known is None else self._open.get(name, known.closed)

    @any_thread
    def _find(self, name: str) -> _Known | None:
        snapshot = self._known.get(snapshot_in(name))
        return None if snapshot is None else snapshot.topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> SnapshotTopic | None:
        names = (each.names.get(topic_id) for each in self._known.values())
        found = next(filter(None, names), None)
        return None if found is None else self.get(found)

    @any_thread
    def all(self) -> list[SnapshotTopic]:
        known = [each for its in list(self._known.values()) for each in its.topics.values()]
        return [self._open.get(each.closed.name, each.closed) for each in known]

    # ---------------------------------------------------------------- making and dropping

    async def add(self, snapshot: SnapshotDescriptor) -> None:
        """Let clients read the topics of a snapshot, except the broker's own."""
        self._known[snapshot.id] = await self._thread.run(self._topics_of, snapshot)
        self.revision += 1

    def remove(self, snapshot_id: str) -> list[str]:
        """Let no client begin to read a snapshot, which is dropped now. Returns the names of its topics.

        The files stay open for those who are reading them.
        """
        gone = self._known.pop(snapshot_id, None)
        names = [] if gone is None else list(gone.topics)
        for name in [each for each in self._open if snapshot_in(each) == snapshot_id]:
            self._close(name)
        self.revision += 1
        return names

    @any_thread
    def _topics_of(self, snapshot: SnapshotDescriptor) -> _OfSnapshot:
        known = [
            _Known(self._closed(snapshot, each), each)
            for each in snapshot.topics
            if each.name not in INTERNAL_TOPICS
        ]
        return _OfSnapshot(
            topics={each.closed.name: each for each in known},
            names={each.closed.id: each.closed.name for each in known},
        )

    @any_thread
    def _closed(self, snapshot: SnapshotDescriptor, described: TopicInSnapshot) -> SnapshotTopic:
        name = snapshot_topic_name(described.name, snapshot.id)
        value = json.loads(snapshot.cluster.get(TOPICS + described.name, "{}"))
        overrides = value.get("configs", {})
        count = max((each.partition for each in described.partitions), default=-1) + 1
        return SnapshotTopic(
            name=name,
            snapshot_id=snapshot.id,
            source_name=described.name,
            source_id=topic_id_of(described.id),
            config=self._configs.of(name, overrides),
            overrides=overrides,
            partitions=tuple(
                OfflineLog(topic_partition=TopicPartition(name, number), offline_reason=NOT_OPEN)
                for number in range(count)
            ),
        )

    # ---------------------------------------------------------------- opening

    async def opened(self, topic: SnapshotTopic) -> SnapshotTopic:
        """Returns the topic with its logs open; one that cannot be opened is offline with its reason."""
        if topic.is_open:
            return topic
        return await to_its_end(self._opened(topic.name, topic))

    async def _opened(self, name: str, topic: SnapshotTopic) -> SnapshotTopic:
        async with self._lock:
            known = self._find(name)
            if known is None or name in self._open:
                return self._open.get(name, topic)
            logs = await self._thread.run(self._logs_of, known)
            found = replace(known.closed, partitions=logs)
            if self._find(name) is None:  # Its snapshot was dropped meanwhile.
                _retire(found)
                return topic
            if len(self._open) >= OPEN_MAX:
                self._close(next(iter(self._open)))
            self._open[name] = found
            return found

    def _close(self, name: str) -> None:
        topic = self._open.pop(name, None)
        if topic is not None:
            _retire(topic)

    def close(self) -> None:
        """Close all of them."""
        for name in list(self._open):
            self._close(name)

    @any_thread
    def _logs_of(self, known: _Known) -> Logs:
        """Open the logs of a topic. A worker thread."""
        logs = list(known.closed.partitions)
        for each in known.described.partitions:
            logs[each.partition] = self._log_of(known, each)
        return tuple(logs)

    @any_thread
    def _log_of(self, known: _Known, part: PartitionInSnapshot) -> PartitionLog | OfflineLog:
        topic, directory = known.closed, self._directories.get(part.directory)
        partition = TopicPartition(topic.name, part.partition)
        if directory is None:
            reason = f"log directory {part.directory} is offline"
            return OfflineLog(topic_partition=partition, offline_reason=reason)
        at = snapshot_path(directory.path, topic.snapshot_id)
        path = join(join(at, known.described.directory_name), str(part.partition))
        try:
            return directory.open_snapshot_log(partition, topic.source_id, topic.config, path)
        except StorageError as error:
            _log.warning("cannot open %s: %s", partition, error)
            return OfflineLog(topic_partition=partition, offline_reason=str(error))


def _retire(topic: SnapshotTopic) -> None:
    for log in topic.partitions:
        if isinstance(log, PartitionLog):
            log.retire()

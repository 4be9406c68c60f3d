"""The view of a topic's last values: a topic that can only be read, and is stored nowhere.

A topic in a snapshot has one, too. It never changes, so no reader needs to know of deletions, and the
view has no tombstones.

Its name is the topic's with a suffix, its partitions are the topic's own, and its id follows from the
topic's. docs/design/views.md says what a reader gets.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import OfflineLog, Topic
from server.views.snapshot_topic import SnapshotTopic
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog

_ID_MASK = 0x004B4F4D50414B542D4C41544553542D
"""Turns the id of a topic into that of its view, and back. The first byte is 0, so that the text of an
id begins with a hyphen only if that of the topic does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestView:
    """The view of one topic, as it is now. Immutable, like `Topic`."""

    name: str
    source: Topic | SnapshotTopic
    """The topic whose last values it shows."""

    @property
    def id(self) -> uuid.UUID:
        return other_id(self.source.id)

    @property
    def is_internal(self) -> bool:
        return False

    @property
    def config(self) -> LogConfig:
        """The topic's."""
        return self.source.config

    @property
    def partitions(self) -> tuple[PartitionLog | OfflineLog, ...]:
        """The logs that it is read from."""
        return self.source.partitions

    def partition(self, number: int) -> PartitionLog | ErrorCode:
        """See `Topic.partition`."""
        return self.source.partition(number)


def other_id(topic_id: uuid.UUID) -> uuid.UUID:
    """Returns the id of a topic's view, or the id of a view's topic."""
    return uuid.UUID(int=topic_id.int ^ _ID_MASK)


def has_view(topic: Topic | SnapshotTopic) -> bool:
    """Returns whether a topic keeps the last value of each key, for clients to read."""
    return topic.config.is_compacted and not topic.is_internal


def is_in_snapshot(readable: Topic | LatestView | SnapshotTopic | None) -> bool:
    """Returns whether something that clients can read is a topic in a snapshot, or the view of one."""
    source = readable.source if isinstance(readable, LatestView) else readable
    return isinstance(source, SnapshotTopic)

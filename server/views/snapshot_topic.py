"""A topic as it is in a snapshot: a topic that can only be read, and never changes.

Its name is that of the topic with the snapshot's id, `orders.snapshot-20261130T041500-7f3a`. Its logs
are opened when the first client asks for them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.wire.error_codes import ErrorCode
from server.topics.topic import OfflineLog
from storage.formats.log_config import LogConfig
from storage.log.log import PartitionLog

INFIX = ".snapshot-"
NOT_OPEN = "it was not opened yet"

_NAME = re.compile(r".+\.snapshot-\d{8}T\d{6}-[0-9a-f]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTopic:
    """A topic in a snapshot, with its logs or placeholders for them. Immutable, like `Topic`."""

    name: str
    snapshot_id: str
    source_name: str
    """The name of the topic, which may no longer exist."""
    source_id: uuid.UUID
    config: LogConfig
    """That of the topic at the moment of the snapshot."""
    overrides: Mapping[str, str]
    """See `Topic.overrides`."""
    partitions: tuple[PartitionLog | OfflineLog, ...]

    @property
    def id(self) -> uuid.UUID:
        return uuid.uuid5(self.source_id, self.snapshot_id)

    @property
    def is_internal(self) -> bool:
        return False

    @property
    def is_open(self) -> bool:
        """Whether its logs were opened, as far as they can be."""
        return all(
            isinstance(each, PartitionLog) or each.offline_reason != NOT_OPEN
            for each in self.partitions
        )

    def partition(self, number: int) -> PartitionLog | ErrorCode:
        """See `Topic.partition`."""
        if not 0 <= number < len(self.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self.partitions[number]
        if isinstance(log, PartitionLog) and log.offline_reason is None:
            return log
        # Clients ask for metadata again, for which the logs are opened.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


def snapshot_topic_name(topic: str, snapshot_id: str) -> str:
    """Returns the name of a topic in a snapshot."""
    return topic + INFIX + snapshot_id


def snapshot_in(name: str) -> str:
    """Returns what would be the id of the snapshot in a name."""
    return name.rpartition(INFIX)[2]


def is_of_snapshot(name: str) -> bool:
    """Returns whether a name is one that a topic in a snapshot has, or may have had."""
    return _NAME.fullmatch(name) is not None

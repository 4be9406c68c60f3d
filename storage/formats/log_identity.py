"""The identity of a log: its partition, its topic id and its directory."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from storage.formats.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIdentity:
    """A log's names and ids. They never change while the log is open."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    directory: str
    """The path of the directory that holds the log's files."""
    directory_id: str
    """The id of the log directory (an entry of `log.dirs`) that holds the log."""
    hash_key: bytes
    """The log directory's secret, for the cleaner's key hashes."""

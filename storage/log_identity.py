"""What a log is and where it lives."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from storage.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIdentity:
    """Constant for a log's life."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    directory: str
    """Where its files are."""
    directory_id: str
    """The id of the log directory that holds it."""
    hash_key: bytes
    """The log directory's secret, for the cleaner's key hashes."""

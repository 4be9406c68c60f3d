"""A topic of the broker: its name, id, configuration and logs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from protocol.wire.error_codes import ErrorCode
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog

EVENTS_TOPIC = "__compaction_events"
"""What the cleaner does with each log (`server/events/`)."""
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", EVENTS_TOPIC}
)
NOT_CREATED = "not created"
DEFAULT = -1
"""A number of partitions or replicas that stands for the broker's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLog:
    """Stands for a log that could not be opened, until the next start, or that is only planned."""

    topic_partition: TopicPartition
    offline_reason: str
    leader_epoch: int = -1

    @classmethod
    def planned(cls, name: str, number: int) -> Self:
        """Returns the placeholder for a log that is planned but not created."""
        return cls(topic_partition=TopicPartition(name, number), offline_reason=NOT_CREATED)

    @property
    def is_planned(self) -> bool:
        """Whether the log was never created."""
        return self.offline_reason == NOT_CREATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """An existing or planned topic. Immutable: a change of its configuration creates a new instance."""

    name: str
    id: uuid.UUID
    config: LogConfig
    overrides: Mapping[str, str]
    """The properties set on the topic, by Kafka's names; the others have the broker's defaults."""
    partitions: tuple[PartitionLog | OfflineLog, ...]
    """Its logs by partition number."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def created_partitions(self) -> tuple[PartitionLog | OfflineLog, ...]:
        """The partitions whose logs were created; they precede the planned ones."""
        return tuple(
            log for log in self.partitions if isinstance(log, PartitionLog) or not log.is_planned
        )

    def partition(self, number: int) -> PartitionLog | ErrorCode:
        """Returns the log of one partition, or the error code for a client that asks for it."""
        if not 0 <= number < len(self.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self.partitions[number]
        if isinstance(log, OfflineLog) or log.offline_reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return log

    def logs(self) -> list[PartitionLog]:
        """Returns the logs that could be opened."""
        return [log for log in self.partitions if not isinstance(log, OfflineLog)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRefused:
    """Why a topic was not created, changed or deleted. Nothing has changed."""

    error_code: ErrorCode
    message: str
    """Empty where Kafka sends no message."""

    @classmethod
    def by_disk(cls, message: str) -> Self:
        """Returns the refusal for a failed disk."""
        return cls(error_code=ErrorCode.KAFKA_STORAGE_ERROR, message=message)

    @classmethod
    def by_stop(cls) -> Self:
        """Returns the refusal for a broker that is stopping."""
        return cls(error_code=ErrorCode.REQUEST_TIMED_OUT, message="The broker is stopping.")

    @classmethod
    def too_late(cls) -> Self:
        """Returns the refusal for a request that timed out before it began; Kafka's has no message."""
        return cls(error_code=ErrorCode.REQUEST_TIMED_OUT, message="")

    @classmethod
    def unknown(cls, name: str) -> Self:
        """Returns the refusal for a topic that does not exist."""
        return cls(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            message=f"The topic '{name}' does not exist.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """The defaults of new topics, and the bound on their partitions."""

    config: LogConfig
    partitions_count: int
    partitions_max: int

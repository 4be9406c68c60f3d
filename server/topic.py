"""A topic as the broker has it: its name, id, configuration and logs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from protocol.error_codes import ErrorCode
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.topic_partition import TopicPartition

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
NOT_CREATED = "not created"
DEFAULT = -1
"""A number of partitions or replicas that leaves it to the broker's configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLog:
    """Stands for a log that could not be opened; it serves nothing until the next start."""

    topic_partition: TopicPartition
    offline_reason: str
    leader_epoch: int = -1

    @classmethod
    def unborn(cls, name: str, number: int) -> Self:
        """Stand for a log of a topic that is only being checked."""
        return cls(topic_partition=TopicPartition(name, number), offline_reason=NOT_CREATED)

    @property
    def is_unborn(self) -> bool:
        """Whether it was never made."""
        return self.offline_reason == NOT_CREATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that exists. A change of its configuration makes a new one of these."""

    name: str
    id: uuid.UUID
    config: LogConfig
    overrides: Mapping[str, str]
    """The configuration that it was given, by Kafka's names; the rest is the broker's."""
    partitions: tuple[PartitionLog | OfflineLog, ...]
    """Its logs by partition number."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def born(self) -> tuple[PartitionLog | OfflineLog, ...]:
        """The partitions that are more than planned; they come first."""
        return tuple(
            log for log in self.partitions if isinstance(log, PartitionLog) or not log.is_unborn
        )

    @property
    def is_unborn(self) -> bool:
        """Whether it has no log yet: it is only planned."""
        return not self.born

    def partition(self, number: int) -> PartitionLog | ErrorCode:
        """The log of one partition, or what to answer a client that asks for it."""
        if not 0 <= number < len(self.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self.partitions[number]
        if isinstance(log, OfflineLog) or log.offline_reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return log

    def logs(self) -> list[PartitionLog]:
        """The logs that could be opened."""
        return [log for log in self.partitions if not isinstance(log, OfflineLog)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRefused:
    """Why a topic is not created, changed or deleted. Nothing has happened."""

    error_code: ErrorCode
    message: str
    """Empty where Kafka says nothing."""

    @classmethod
    def by_disk(cls, message: str) -> Self:
        """A disk failed."""
        return cls(error_code=ErrorCode.KAFKA_STORAGE_ERROR, message=message)

    @classmethod
    def by_stop(cls) -> Self:
        """The broker stops, and begins nothing any more."""
        return cls(error_code=ErrorCode.REQUEST_TIMED_OUT, message="The broker is stopping.")

    @classmethod
    def too_late(cls) -> Self:
        """The request's time was over before its turn came; Kafka says no more of it either."""
        return cls(error_code=ErrorCode.REQUEST_TIMED_OUT, message="")

    @classmethod
    def unknown(cls, name: str) -> Self:
        """There is no such topic."""
        return cls(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            message=f"The topic '{name}' does not exist.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What a topic gets that is created without saying more."""

    config: LogConfig
    partitions_count: int
    partitions_max: int

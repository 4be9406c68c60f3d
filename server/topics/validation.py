"""Checks requests to create topics or add partitions. Pure; `Topics` executes them.

Messages are Kafka's where they are true here. Source: Apache Kafka, ReplicationControlManager.java.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from protocol.wire.error_codes import ErrorCode
from server.metadata.store import METADATA_TOPIC
from server.topics.computed_configs import TopicConfigs
from server.topics.names import collision_key, fault_of_name
from server.topics.topic import DEFAULT, INTERNAL_TOPICS, Topic, TopicDefaults, TopicRefused
from storage.formats.compaction_config import MIN_SEGMENT_DEAD_RATIO
from storage.formats.compaction_history import THINNING, VERSIONS
from storage.formats.compaction_strategy import STRATEGY
from storage.formats.compaction_ttl import NO_TTL, TTL, TTL_HEADER
from storage.formats.config_property import ConfigError
from storage.formats.log_config import LogConfig

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's MAX_PARTITIONS_PER_BATCH: the most partitions that one request may create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that a client asks to create."""

    name: str
    partitions_count: int = DEFAULT
    replication_factor: int = DEFAULT
    overrides: Mapping[str, str] = field(default_factory=dict)
    topic_id: uuid.UUID | None = None
    """Its id, if it is a copy of a topic of the same cluster; None: a new one."""


Admit = Callable[[int], TopicRefused | None]
"""Called with a number of partitions to create. Returns why that must not happen now, or None."""


def admit_all(_: int) -> None:
    """Admit any number of partitions."""


def fault_of_request(counts: Iterable[int]) -> TopicRefused | None:
    """Returns why a request may not create this many partitions; None if it may.

    Args:
        counts: the number for each topic; invalid numbers are summed as they are, as in Kafka.
    """
    total = 0
    for count in counts:
        total += count
        if total > PARTITIONS_PER_REQUEST_MAX:
            text = "Excessively large number of partitions per request."
            return TopicRefused(error_code=ErrorCode.POLICY_VIOLATION, message=text)
    return None


def check_creation(
    new_topic: NewTopic,
    *,
    existing: Mapping[str, str],
    defaults: TopicDefaults,
    configs: TopicConfigs,
) -> tuple[int, LogConfig] | TopicRefused:
    """Returns the number of partitions and the configuration of a new topic, or why it is refused.

    Args:
        existing: the names of the existing topics, by their collision keys.
        configs: computes configurations over `defaults`.
    """
    refusal = _refuse_name(new_topic.name, existing) or _refuse_replicas(
        new_topic.replication_factor
    )
    if refusal is not None:
        return refusal
    count = new_topic.partitions_count
    count = defaults.partitions_count if count == DEFAULT else count
    refusal = _refuse_count(count, defaults.partitions_max)
    if refusal is not None:
        return refusal
    try:
        config = configs.strictly(new_topic.overrides)
    except ConfigError as error:
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=str(error))
    return fault_of_kept_records(new_topic.name, config) or (count, config)


def fault_of_kept_records(name: str, config: LogConfig) -> TopicRefused | None:
    """Returns why a topic cannot keep the records that its configuration says; None if it can."""
    keeps_others = (
        config.strategy.has_versions
        or config.history.keeps_more
        or config.spares_segments
        or config.ttl.is_set
    )
    if name not in INTERNAL_TOPICS or not keeps_others:
        return None
    return TopicRefused(
        error_code=ErrorCode.INVALID_CONFIG,
        message=f"{name} is an internal topic: its readers need the last record of each key."
        f" {STRATEGY} must be offset, {VERSIONS} 1, {THINNING} empty and {MIN_SEGMENT_DEAD_RATIO} 0, and"
        f" none expires: {TTL} must be {NO_TTL} and {TTL_HEADER} empty.",
    )


def fault_of_growth(
    topic: Topic, partitions_count: int, partitions_max: int
) -> TopicRefused | None:
    """Returns why a topic cannot grow to this many partitions; None if it can."""
    if topic.is_internal:
        # Their number decides where a group or transaction is stored; growth would lose existing ones.
        # Kafka allows it.
        text = f"{topic.name} is an internal topic, whose number of partitions cannot change."
        return TopicRefused(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=text)
    before = len(topic.partitions)
    if partitions_count == before:
        text = f"Topic already has {before} partition(s)."
    elif partitions_count < before:
        text = (
            f"The topic {topic.name} currently has {before} partition(s); {partitions_count} would"
            " not be an increase."
        )
    else:
        return _refuse_count(partitions_count, partitions_max)
    return TopicRefused(error_code=ErrorCode.INVALID_PARTITIONS, message=text)


def _refuse_name(name: str, existing: Mapping[str, str]) -> TopicRefused | None:
    if name == METADATA_TOPIC:
        text = f"Creation of internal topic {name} is prohibited."
        return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=text)
    fault = fault_of_name(name)
    if fault is not None:
        return TopicRefused(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=fault)
    other = existing.get(collision_key(name))
    if other == name:
        return TopicRefused(
            error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message=f"Topic '{name}' already exists."
        )
    if other is not None:
        return TopicRefused(
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            message=f"Topic '{name}' collides with existing topic: {other}",
        )
    return None


def _refuse_count(partitions_count: int, partitions_max: int) -> TopicRefused | None:
    if 0 < partitions_count <= partitions_max:
        return None
    message = (
        f"{partitions_count} partitions: a topic has at most {partitions_max}"
        " (max.topic.partitions)."
        if partitions_count > 0
        else "Number of partitions was set to an invalid non-positive value."
    )
    return TopicRefused(error_code=ErrorCode.INVALID_PARTITIONS, message=message)


def _refuse_replicas(replication_factor: int) -> TopicRefused | None:
    if replication_factor in (DEFAULT, 1):
        return None
    message = (
        f"Unable to replicate the partition {replication_factor} time(s): The target replication"
        f" factor of {replication_factor} cannot be reached because only 1 broker(s) are registered."
        if replication_factor > 1
        else "Replication factor must be larger than 0, or -1 to use the default value."
    )
    return TopicRefused(error_code=ErrorCode.INVALID_REPLICATION_FACTOR, message=message)

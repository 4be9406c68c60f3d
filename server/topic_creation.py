"""Whether a topic that somebody wishes for can be created. Pure; `Topics.create` does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from protocol.error_codes import ErrorCode
from server.topic import DEFAULT, TopicDefaults, TopicRefused
from server.topic_names import colliding_name, fault_of_name
from storage.config_property import ConfigError
from storage.log_config import LogConfig


def check_creation(
    name: str,
    partitions_count: int,
    replication_factor: int,
    overrides: Mapping[str, str],
    *,
    existing: Collection[str],
    defaults: TopicDefaults,
) -> tuple[int, LogConfig] | TopicRefused:
    """The number of partitions and the configuration, or what is wrong with the wish.

    Args:
        existing: the names of the topics that are there.
    """
    refusal = _refuse_name(name, existing) or _refuse_replicas(replication_factor)
    if refusal is not None:
        return refusal
    count = defaults.partitions_count if partitions_count == DEFAULT else partitions_count
    if not 0 < count <= defaults.partitions_max:
        return TopicRefused(
            error_code=ErrorCode.INVALID_PARTITIONS,
            message=f"{count} partitions: a topic has 1 to {defaults.partitions_max}",
        )
    try:
        return count, LogConfig.from_overrides(overrides, defaults.config)
    except ConfigError as error:
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=str(error))


def _refuse_name(name: str, existing: Collection[str]) -> TopicRefused | None:
    fault = fault_of_name(name)
    if fault is not None:
        return TopicRefused(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=fault)
    if name in existing:
        return TopicRefused(
            error_code=ErrorCode.TOPIC_ALREADY_EXISTS, message=f"Topic '{name}' already exists."
        )
    other = colliding_name(name, existing)
    if other is not None:
        return TopicRefused(
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            message=f"Topic '{name}' collides with existing topic: {other}",
        )
    return None


def _refuse_replicas(replication_factor: int) -> TopicRefused | None:
    if replication_factor in (DEFAULT, 1):
        return None
    message = (
        f"Unable to replicate the partition {replication_factor} time(s): the replication factor"
        " cannot be larger than 1, because this cluster has one broker."
        if replication_factor > 1
        else "Replication factor must be larger than 0, or -1 to use the default value."
    )
    return TopicRefused(error_code=ErrorCode.INVALID_REPLICATION_FACTOR, message=message)

"""The part of the broker's configuration that is about consumer groups, and what a group may override.

    group.consumer.session.timeout.ms                  the broker's value, declared once
    group.consumer.min.session.timeout.ms, ...max...   the bounds of what a group may set
    consumer.session.timeout.ms                        a group's value: derived, with a text of its own

Source: Apache Kafka, GroupCoordinatorConfig.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from storage.formats.config_property import (
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    ConfigProperty,
    Synonym,
    Value,
    prop,
    properties_of,
)


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Limits and timeouts of groups."""

    __slots__ = ()

    group_min_session_timeout_ms: int = prop(
        "group.min.session.timeout.ms",
        INT,
        default=6_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="The shortest session timeout that a member may request. Shorter: a dead member is"
        " noticed sooner, at the cost of more heartbeats.",
    )
    group_max_session_timeout_ms: int = prop(
        "group.max.session.timeout.ms",
        INT,
        default=1_800_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="The longest session timeout that a member may request.",
    )
    group_initial_rebalance_delay_ms: int = prop(
        "group.initial.rebalance.delay.ms",
        INT,
        default=3_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="How long the first rebalance of an empty group waits for more members. Longer: fewer"
        " rebalances at startup, but members get their first records later.",
    )
    group_max_size: int = prop(
        "group.max.size",
        INT,
        default=INT_MAX,
        at_least=1,
        dynamic=False,
        doc="The maximum number of members in a group.",
    )
    group_consumer_session_timeout_ms: int = prop(
        "group.consumer.session.timeout.ms",
        INT,
        default=45_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="A member of the consumer protocol that sends no heartbeat for so long is fenced. Shorter: a"
        " dead member is noticed sooner; it must be longer than the heartbeat interval.",
    )
    group_consumer_heartbeat_interval_ms: int = prop(
        "group.consumer.heartbeat.interval.ms",
        INT,
        default=5_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The interval at which members of the consumer protocol send heartbeats. Shorter: a"
        " rebalance completes sooner, at the cost of more requests.",
    )
    group_consumer_min_session_timeout_ms: int = prop(
        "group.consumer.min.session.timeout.ms",
        INT,
        default=45_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The shortest session timeout that a group's own configuration may set.",
    )
    group_consumer_max_session_timeout_ms: int = prop(
        "group.consumer.max.session.timeout.ms",
        INT,
        default=60_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest session timeout that a group's own configuration may set.",
    )
    group_consumer_min_heartbeat_interval_ms: int = prop(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        default=5_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The shortest heartbeat interval that a group's own configuration may set.",
    )
    group_consumer_max_heartbeat_interval_ms: int = prop(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        default=15_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest heartbeat interval that a group's own configuration may set.",
    )
    group_consumer_max_size: int = prop(
        "group.consumer.max.size",
        INT,
        default=INT_MAX,
        at_least=1,
        dynamic=False,
        doc="The maximum number of members in a group of the consumer protocol.",
    )
    group_consumer_assignors: tuple[str, ...] = prop(
        "group.consumer.assignors",
        LIST,
        default=("uniform", "range"),
        choices=("uniform", "range"),
        dynamic=False,
        doc="The assignors that members of the consumer protocol may request; the first one is the"
        " default. uniform gives each member the same number of partitions; range does so for each"
        " topic, with the same partition numbers for topics of equal partition counts.",
    )
    group_consumer_migration_policy: str = prop(
        "group.consumer.migration.policy",
        STRING,
        default="bidirectional",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        dynamic=False,
        doc="How a group with members may change its protocol: to the consumer protocol when the first"
        " member with that protocol joins (upgrade), back when the last such member leaves (downgrade),"
        " both or neither. An empty group changes to the protocol of the first member that joins.",
    )
    offsets_topic_num_partitions: int = prop(
        "offsets.topic.num.partitions",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="Partitions of __consumer_offsets, which stores the groups and their committed offsets. Used"
        " when the topic is created; the partition of a group never changes.",
    )
    offsets_topic_segment_bytes: int = prop(
        "offsets.topic.segment.bytes",
        INT,
        default=104_857_600,
        at_least=1 << 20,
        unit="bytes",
        dynamic=False,
        doc="segment.bytes of __consumer_offsets. Small, so that it is compacted soon and loads fast.",
    )
    offsets_retention_minutes: int = prop(
        "offsets.retention.minutes",
        INT,
        default=10_080,
        at_least=1,
        unit="minutes",
        dynamic=False,
        doc="A committed offset is deleted this long after its group lost its last member; if the group"
        " never has members or does not subscribe to the topic, this long after the commit (KIP-211).",
    )
    offsets_retention_check_interval_ms: int = prop(
        "offsets.retention.check.interval.ms",
        LONG,
        default=600_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The interval between two searches for expired offsets.",
    )
    offset_metadata_max_bytes: int = prop(
        "offset.metadata.max.bytes",
        INT,
        default=4_096,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="The longest metadata that a commit may store for a partition; counted in characters, as"
        " in Kafka.",
    )


def _overriding(field: str, doc: str) -> Any:
    """Declare the property by which a group overrides one of the broker's, given by its field."""
    broker = properties_of(GroupConfig)[field]
    return prop(
        broker.name.removeprefix("group."),
        broker.type,
        default=broker.default,
        at_least=broker.at_least,
        unit=broker.unit,
        synonyms=(Synonym(name=broker.name),),
        doc=doc,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProperties:
    """The properties that a group can override."""

    consumer_session_timeout_ms: int = _overriding(
        "group_consumer_session_timeout_ms",
        doc="A member of the group that sends no heartbeat for this time is fenced.",
    )
    consumer_heartbeat_interval_ms: int = _overriding(
        "group_consumer_heartbeat_interval_ms",
        doc="The interval at which members of the group send heartbeats.",
    )

    @classmethod
    def of_broker(cls, config: GroupConfig) -> GroupProperties:
        """Returns the properties of a group without its own configuration."""
        return cls(
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        )

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]:
        """Returns every property with its value."""
        for field, declared in properties_of(type(self)).items():
            yield declared, getattr(self, field)


GROUP_PROPERTIES = frozenset(each.name for each in properties_of(GroupProperties).values())

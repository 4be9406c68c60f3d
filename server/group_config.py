"""The part of the broker's configuration that is about consumer groups.

Source: Apache Kafka, GroupCoordinatorConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.network_config import NetworkConfig
from storage.config_property import INT, INT_MAX, LIST, LONG, STRING, prop


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(NetworkConfig):
    """What groups may ask for, and how long they are waited for. (A class with slots can extend
    only one other, so the parts of the configuration extend each other.)"""

    group_min_session_timeout_ms: int = prop(
        "group.min.session.timeout.ms",
        INT,
        default=6_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="The shortest session timeout that a member may ask for. Shorter: a dead member is"
        " noticed sooner, at the cost of more heartbeats.",
    )
    group_max_session_timeout_ms: int = prop(
        "group.max.session.timeout.ms",
        INT,
        default=1_800_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="The longest session timeout that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = prop(
        "group.initial.rebalance.delay.ms",
        INT,
        default=3_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="How long the first rebalance of an empty group waits for more members. Longer: fewer"
        " rebalances at a start, but the first record comes later.",
    )
    group_max_size: int = prop(
        "group.max.size",
        INT,
        default=INT_MAX,
        at_least=1,
        dynamic=False,
        doc="The most members of a group.",
    )
    group_consumer_session_timeout_ms: int = prop(
        "group.consumer.session.timeout.ms",
        INT,
        default=45_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="A member of the consumer protocol that is not heard of for so long is fenced. Shorter: a"
        " dead member is noticed sooner; it must be longer than the heartbeat interval.",
    )
    group_consumer_heartbeat_interval_ms: int = prop(
        "group.consumer.heartbeat.interval.ms",
        INT,
        default=5_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often members of the consumer protocol are told to send heartbeats. Shorter: a"
        " rebalance is over sooner, at the cost of more requests.",
    )
    group_consumer_min_session_timeout_ms: int = prop(
        "group.consumer.min.session.timeout.ms",
        INT,
        default=45_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The shortest session timeout that a group may have of its own.",
    )
    group_consumer_max_session_timeout_ms: int = prop(
        "group.consumer.max.session.timeout.ms",
        INT,
        default=60_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest session timeout that a group may have of its own.",
    )
    group_consumer_min_heartbeat_interval_ms: int = prop(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        default=5_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The shortest heartbeat interval that a group may have of its own.",
    )
    group_consumer_max_heartbeat_interval_ms: int = prop(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        default=15_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="The longest heartbeat interval that a group may have of its own.",
    )
    group_consumer_max_size: int = prop(
        "group.consumer.max.size",
        INT,
        default=INT_MAX,
        at_least=1,
        dynamic=False,
        doc="The most members of a group of the consumer protocol.",
    )
    group_consumer_assignors: tuple[str, ...] = prop(
        "group.consumer.assignors",
        LIST,
        default=("uniform", "range"),
        choices=("uniform", "range"),
        dynamic=False,
        doc="The assignors that members of the consumer protocol may ask for; the first one assigns"
        " where they ask for none. uniform gives each as many partitions; range of each topic as"
        " many, and the same of topics with as many partitions.",
    )
    group_consumer_migration_policy: str = prop(
        "group.consumer.migration.policy",
        STRING,
        default="bidirectional",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        dynamic=False,
        doc="Which way a group may change its protocol while it has members: to the consumer protocol"
        " with its first member that speaks it (upgrade), back with the last one's leaving (downgrade),"
        " both or neither. A group without members changes with the first member of the other one.",
    )
    offsets_topic_num_partitions: int = prop(
        "offsets.topic.num.partitions",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="Partitions of __consumer_offsets, which holds what groups are and have committed. It counts"
        " when the topic is made; which partition a group is in never changes.",
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
        doc="A committed offset is forgotten so long after its group has lost its last member; where"
        " nobody is a member, or subscribed to the topic, so long after it was committed (KIP-211).",
    )
    offsets_retention_check_interval_ms: int = prop(
        "offsets.retention.check.interval.ms",
        LONG,
        default=600_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often committed offsets are looked at for those that have expired.",
    )
    offset_metadata_max_bytes: int = prop(
        "offset.metadata.max.bytes",
        INT,
        default=4_096,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="The longest metadata that a commit may bring for a partition; counted in characters, as"
        " Kafka does.",
    )

"""The part of the broker's configuration that is about consumer groups.

Source: Apache Kafka, GroupCoordinatorConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.network_config import NetworkConfig
from storage.config_property import INT, INT_MAX, LONG, prop


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

"""The part of the broker's configuration that is about consumer groups.

Source: Apache Kafka, GroupCoordinatorConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.network_config import NetworkConfig
from storage.config_property import INT, INT_MAX, prop


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

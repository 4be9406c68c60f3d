"""The part of a topic's settings that has no effect: of features that are not built, or not needed.

Kafka's own tools send these settings (replication throttles, tiered storage), so they are accepted,
checked and described. A value that would promise something untrue is refused.

Source: Apache Kafka, TopicConfig.java, LogConfig.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.formats.config_property import (
    BOOLEAN,
    LIST,
    LONG,
    ConfigError,
    Synonym,
    prop,
)

THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class UnusedLogConfig:
    """The settings that change nothing."""

    __slots__ = ()

    file_delete_delay_ms: int = prop(
        "file.delete.delay.ms",
        LONG,
        default=60_000,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.segment.delete.delay.ms"),),
        doc="Has no effect: a deleted segment's file is removed when its last reader is done.",
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        synonyms=(Synonym(name="unclean.leader.election.enable"),),
        doc="Whether a replica that is not in sync may lead. Has no effect with one replica.",
    )
    message_downconversion_enable: bool = prop(
        "message.downconversion.enable",
        BOOLEAN,
        default=True,
        synonyms=(Synonym(name="log.message.downconversion.enable"),),
        doc="Has no effect, as in Kafka since 4.0: records are always sent as they are stored.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = prop(
        "leader.replication.throttled.replicas",
        LIST,
        default=(),
        doc="Replicas whose replication is throttled at the leader. Has no effect with one replica.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = prop(
        "follower.replication.throttled.replicas",
        LIST,
        default=(),
        doc="Replicas whose replication is throttled at the follower. Has no effect with one replica.",
    )
    remote_storage_enable: bool = prop(
        "remote.storage.enable",
        BOOLEAN,
        default=False,
        choices=("false",),
        doc="Tiered storage, which is not offered.",
    )
    remote_log_copy_disable: bool = prop(
        "remote.log.copy.disable",
        BOOLEAN,
        default=False,
        doc="Has no effect without tiered storage: whether new data of a tiered topic stays local.",
    )
    remote_log_delete_on_disable: bool = prop(
        "remote.log.delete.on.disable",
        BOOLEAN,
        default=False,
        doc="Has no effect without tiered storage: whether disabling it deletes the tiered data.",
    )
    local_retention_ms: int = prop(
        "local.retention.ms",
        LONG,
        default=-2,
        at_least=-2,
        unit="ms",
        synonyms=(Synonym(name="log.local.retention.ms"),),
        doc="Has no effect without tiered storage; -2 means the same as retention.ms.",
    )
    local_retention_bytes: int = prop(
        "local.retention.bytes",
        LONG,
        default=-2,
        at_least=-2,
        unit="bytes",
        synonyms=(Synonym(name="log.local.retention.bytes"),),
        doc="Has no effect without tiered storage; -2 means the same as retention.bytes.",
    )

    def check_throttled(self) -> None:
        """Raise ConfigError unless the lists of throttled replicas have Kafka's format."""
        _check_throttled("leader", self.leader_replication_throttled_replicas)
        _check_throttled("follower", self.follower_replication_throttled_replicas)


def _check_throttled(role: str, replicas: tuple[str, ...]) -> None:
    """Raise ConfigError unless the text means all replicas or is a list of them."""
    if replicas != ("*",) and not all(map(THROTTLED_REPLICA.fullmatch, replicas)):
        raise ConfigError(
            f"Invalid value {','.join(replicas)[:100]!r} for configuration"
            f" {role}.replication.throttled.replicas: must be the literal '*' or a list of replicas"
            " in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

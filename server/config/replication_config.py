"""The properties of mirrors: how much of a source is fetched at once, and what a comparison may use.

Source: Apache Kafka, ReplicationConfigs.java (names and defaults of `replica.fetch`): there they are
those of followers.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import INT, prop


@dataclass(frozen=True, kw_only=True)
class ReplicationConfig:
    """How mirrors fetch from their source."""

    __slots__ = ()

    num_replica_fetchers: int = prop(
        "num.replica.fetchers",
        INT,
        default=2,
        at_least=1,
        at_most=64,
        dynamic=False,
        doc="The connections over which a link copies from each broker of its source. With two, one"
        " fetches while the other one writes. Apache Kafka has 1.",
    )
    replica_fetch_max_bytes: int = prop(
        "replica.fetch.max.bytes",
        INT,
        default=1 << 20,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="The bytes that a mirror fetches of a partition at once. A first batch that is larger comes"
        " nevertheless.",
    )
    replica_fetch_response_max_bytes: int = prop(
        "replica.fetch.response.max.bytes",
        INT,
        default=10 << 20,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="The bytes that a link fetches at once from each broker of its source, over one"
        " connection, of all partitions together.",
    )
    replica_fetch_wait_max_ms: int = prop(
        "replica.fetch.wait.max.ms",
        INT,
        default=500,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="How long the source waits for records if it has none; four times as long while none of a"
        " link's partitions has anything new. A partition that is new to a link is fetched after that.",
    )
    replica_fetch_min_bytes: int = prop(
        "replica.fetch.min.bytes",
        INT,
        default=1,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="The source answers a link as soon as it has so many bytes.",
    )
    replica_verify_memory_bytes: int = prop(
        "replica.verify.memory.bytes",
        INT,
        default=64 << 20,
        at_least=4096,
        unit="bytes",
        dynamic=False,
        doc="The memory of a comparison of a mirror with its source, 64 bytes for each key. With more"
        " keys than fit, both sides are read more than once.",
    )

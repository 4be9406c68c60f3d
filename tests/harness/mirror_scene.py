"""Topics of traced records, a network to their source, and a broker that mirrors them by two links.

The source is a broker of ours or an Apache Kafka. One link's mirrors are compacted here, the other's are
not; one topic deletes nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
)

from tests.harness.broker_process import BrokerProcess, free_ports, scrape
from tests.harness.clients import create_topic, high_watermarks
from tests.harness.faulty_network import FaultyNetwork
from tests.harness.group_run import until
from tests.harness.traced_records import TracedTopic
from tests.harness.typed_commands import TypedCommands

FULL, COMPACTED, JOURNAL = "full", "compacted", "journal"
LINKS: Mapping[str, tuple[str, Sequence[str]]] = {
    "keeps": ("off", (FULL, JOURNAL)),
    "compacts": ("on", (COMPACTED,)),
}
"""Each link's compaction, and its topics."""
COMPACT = {"cleanup.policy": "compact"}
CONFIGS = {
    FULL: COMPACT,
    COMPACTED: COMPACT,
    JOURNAL: {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": str(4 << 20)},
}
EAGER = {"min.cleanable.dirty.ratio": "0"}
ALTERED: Mapping[str, Sequence[str]] = {
    "max.message.bytes": (str(1 << 20), str(1 << 21)),
    "min.cleanable.dirty.ratio": ("0", "0.3"),
    "min.compaction.lag.ms": ("0", "1"),
}
"""Properties that change at the source while it is copied."""
LOCAL = "segment.ms"
"""A property that is set at the mirrors, which then do not follow the source's."""
PARTITIONS, PARTITIONS_MAX = 2, 4
SECONDS = 60

Ends = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Way:
    """The way from a mirror to its source, and the source's ports."""

    network: FaultyNetwork
    port: int
    """For clients beside the network."""
    behind: int

    @property
    def listeners(self) -> dict[str, str]:
        """The source's properties: what it advertises to mirrors is the network."""
        host = "127.0.0.1"
        direct = f"PLAINTEXT://{host}:{self.port}"
        return {
            "listeners": f"{direct},MIRROR://{host}:{self.behind}",
            "advertised.listeners": f"{direct},MIRROR://{host}:{self.network.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MIRROR:PLAINTEXT",
        }


@contextmanager
def way_to_source(choices: random.Random) -> Iterator[Way]:
    """Run a network to a source that may then be started."""
    port, behind = free_ports(2)
    with FaultyNetwork(behind, random.Random(choices.random())) as network:
        yield Way(network, port, behind)


class MirrorScene:
    """The topics of a source, and their mirrors."""

    def __init__(self, bootstrap: str, way: Way, mirror: BrokerProcess) -> None:
        """
        Args:
            bootstrap: the source's address beside the network.
        """
        # Constant after construction
        self.bootstrap = bootstrap
        self.network = way.network
        self.mirror = mirror
        self.typed = TypedCommands(mirror)
        self.topics = [
            TracedTopic(name, PARTITIONS, is_compacted=config is COMPACT)
            for name, config in CONFIGS.items()
        ]
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, own: Mapping[str, str]) -> None:
        """Create the topics and the links, and wait until all partitions are copied.

        Args:
            own: properties of the compacted topics.
        """
        for topic in self.topics:
            config = CONFIGS[topic.name] | ({**EAGER, **own} if topic.is_compacted else {})
            create_topic(self.bootstrap, topic.name, partitions=topic.partitions, config=config)
        for link, (compaction, names) in LINKS.items():
            address = f"127.0.0.1:{self.network.port}"
            chosen = [word for name in names for word in ("--topic", name)]
            create = ("replica", "create", link, "--source", address, "--compaction", compaction)
            self.typed.told(*create, *chosen)
        self.wait_until_level()
        for name in self.compacted:
            self.typed.told("configs", "set", "--topic", name, f"{LOCAL}=600")

    @property
    def compacted(self) -> list[str]:
        """The compacted topics."""
        return [each.name for each in self.topics if each.is_compacted]

    def number_of(self, topic: str) -> int:
        """Returns the number of a topic in the ledger."""
        return [each.name for each in self.topics].index(topic)

    # ---------------------------------------------------------------- changes at the source

    def add_partition(self, choices: random.Random) -> None:
        """Give a topic one partition more, unless all have the most."""
        small = [each for each in self.topics if each.partitions < PARTITIONS_MAX]
        if small:
            topic = choices.choice(small)
            wanted = NewPartitions(topic.name, topic.partitions + 1)
            self._admin.create_partitions([wanted])[topic.name].result(SECONDS)
            topic.partitions += 1
            until(
                "brokers know the partition",
                lambda: self._partitions(topic.name) == topic.partitions,
                str,
            )

    def _partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)

    def alter_something(self, choices: random.Random) -> None:
        """Change a property of a compacted topic."""
        name = choices.choice(list(ALTERED))
        self.alter(choices.choice(self.compacted), {name: choices.choice(ALTERED[name])})

    def alter(self, topic: str, values: Mapping[str, str]) -> None:
        """Set properties of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    # ---------------------------------------------------------------- what both sides show

    def ends(self) -> Ends:
        """Returns the source's end offsets."""
        return {
            (topic.name, partition): end
            for topic in self.topics
            for partition, end in high_watermarks(
                self.bootstrap, topic.name, topic.partitions
            ).items()
        }

    def mirrored(self) -> list[dict[str, Any]]:
        """Returns the mirrored partitions."""
        address = f"127.0.0.1:{self.mirror.http_port}"
        links = [json.loads(scrape(address, f"/v1/links/{name}")) for name in LINKS]
        return [each for link in links for each in link["partitions"]]

    def synced_ends(self) -> Ends:
        """Returns up to where each partition is mirrored, durably."""
        return {(each["topic"], each["partition"]): each["synced_end"] for each in self.mirrored()}

    def wait_until_beyond(self, ends: Ends) -> None:
        """Wait until the mirrors have these offsets."""

        def are_beyond() -> bool:
            synced = self.synced_ends()
            return all(synced.get(at, -1) >= end for at, end in ends.items())

        until("the mirrors go on", are_beyond, lambda: f"{self.mirrored()}, wanted {ends}")

    def wait_until_level(self) -> None:
        """Wait until the mirrors end where their sources do, and are being copied."""
        ends = self.ends()

        def are_level() -> bool:
            states = {each["state"] for each in self.mirrored()}
            return states == {"copying"} and self.synced_ends() == ends

        until("the mirrors have all", are_level, lambda: f"{self.mirrored()}, source {ends}")

    def wait_until_configured(self) -> None:
        """Wait until the mirrors have what is set for their sources, except the local property."""
        here = AdminClient({"bootstrap.servers": self.mirror.bootstrap_servers})

        def missing() -> dict[str, dict[str, str | None]]:
            return {
                name: dict(_set_for(self._admin, name).items() - _set_for(here, name).items())
                for name in (each.name for each in self.topics)
            }

        until(
            "the mirrors have the properties",
            lambda: not any(missing().values()),
            lambda: str(missing()),
        )


def _set_for(admin: AdminClient, topic: str) -> dict[str, str | None]:
    """Returns what is set for a topic, except the local property and what Kafka says is internal."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    return {
        name: entry.value
        for name, entry in found.items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        if name != LOCAL and not name.startswith("internal.")
    }

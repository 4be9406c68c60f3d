"""Reads the topics of a source that a link follows: ids, partitions, leaders, and properties.

The properties that a topic overrides go along, and those that decide what its log contains even if they
are the source's defaults. Those about where it lies do not: here it has one replica.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from zlib import crc32

from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.wire.error_codes import ErrorCode
from server.client.access import Access
from server.client.broker_client import BrokerClient
from server.client.errors import ClientFailed
from server.replication.findings import SourceTopic
from server.replication.link_spec import LinkSpec
from server.runtime.turns import Pace, Turns
from server.topics.mirrors import ALTERS_DATA
from storage.formats.config_property import fields_by_property
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition

TOPIC = 2
"""The resource type of a topic."""
SET_ON_TOPIC = 1
"""The source of a property that the topic overrides."""
STAY = frozenset(
    {
        "confluent.value.schema.validation",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "min.insync.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "unclean.leader.election.enable",
    }
)
"""Properties about a topic's replicas and tiers at the source."""
ALWAYS = ALTERS_DATA | {"delete.retention.ms", "max.message.bytes"}
"""Properties that go along even if they are the source's defaults."""
COMPACTS = frozenset({"compact", "dedupe"})
"""Values of cleanup.policy; Kompakt has the old name of compact, too."""
COMPACTION_HOLD = "compaction.hold.groups"
"""A source with this property keeps tombstones for the groups that it names."""
CONFIGS_AT_ONCE = 500


Fetcher: TypeAlias = tuple[str, int]
"""A leader's address, and which of the connections to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic of the source."""

    name: str
    facts: SourceTopic
    overrides: Mapping[str, str]
    """The properties that its mirror gets."""
    leaders: Mapping[int, str]
    """The address of each partition's leader, of those that have one."""
    leader_epochs: Mapping[int, int]
    """The epoch in which each leads; -1 if the source does not say."""
    leader_ids: Mapping[int, int] = field(default_factory=dict)
    """The node id of each partition's leader, of those that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopics:
    """What a source has of what a link follows."""

    cluster_id: str
    brokers: Collection[str] = ()
    """The addresses of its brokers."""
    topics: Mapping[str, FoundTopic] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    """Why a topic cannot be followed now, by its name."""

    def led_by(self, fetchers: int) -> dict[Fetcher, list[TopicPartition]]:
        """Returns the partitions of each fetcher. A partition keeps its number when its leader changes.

        Args:
            fetchers: how many each leader has.
        """
        led: dict[Fetcher, list[TopicPartition]] = {}
        for topic in self.topics.values():
            first = crc32(topic.name.encode())
            for number, address in topic.leaders.items():
                fetcher = address, (first + number) % fetchers
                led.setdefault(fetcher, []).append(TopicPartition(topic.name, number))
        return led


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """Where a partition of a source can be read, and what its cleaner may do."""

    partition: TopicPartition
    topic_id: uuid.UUID
    address: str
    """The leader's."""
    access: Access
    compacts: bool
    delete_retention_ms: int


async def find_topics(client: BrokerClient, spec: LinkSpec) -> FoundTopics:
    """Ask a source for the topics that a link follows.

    Raises:
        ClientFailed: it does not answer, or refuses.
    """
    metadata = await client.call(_metadata_request(spec), MetadataResponse)
    follows, pace = spec.topic_filter(), Pace(Turns())
    followed = [
        each async for each in pace.paced(metadata.topics) if each.name and follows(each.name)
    ]
    errors = {
        each.name: _why(ErrorCode.from_wire(each.error_code))
        for each in followed
        if each.error_code and each.name
    }
    found = [each for each in followed if not each.error_code]
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata.brokers}
    configs = await _configs(client, [each.name for each in found if each.name])
    topics = {
        each.name: _found(each, configs[each.name], addresses, spec)
        for each in found
        if each.name in configs
    }
    return FoundTopics(
        cluster_id=metadata.cluster_id or "",
        brokers=tuple(addresses.values()),
        topics=topics,
        errors=errors,
    )


def _why(error: ErrorCode) -> str:
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "the source has no topic of this name"
    return error.message


def _metadata_request(spec: LinkSpec) -> MetadataRequest:
    if spec.takes_every_topic:
        return MetadataRequest(topics=None, allow_auto_topic_creation=False)
    topics = tuple(MetadataRequestTopic(name=name) for name in spec.topics)
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def _configs(client: BrokerClient, names: Sequence[str]) -> dict[str, DescribeConfigsResult]:
    found: dict[str, DescribeConfigsResult] = {}
    for start in range(0, len(names), CONFIGS_AT_ONCE):
        resources = tuple(
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=None
            )
            for name in names[start : start + CONFIGS_AT_ONCE]
        )
        request = DescribeConfigsRequest(resources=resources)
        for result in (await client.call(request, DescribeConfigsResponse)).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # It was deleted since the source has listed it.
            if result.error_code:
                message = result.error_message or ErrorCode.from_wire(result.error_code).message
                raise ClientFailed(f"the properties of {result.resource_name}: {message}")
            found[result.resource_name] = result
    return found


def _found(
    topic: MetadataResponseTopic,
    configs: DescribeConfigsResult,
    addresses: Mapping[int, str],
    spec: LinkSpec,
) -> FoundTopic:
    assert topic.name is not None
    effective = {each.name: each.value or "" for each in configs.configs}
    policy = {each.strip() for each in effective.get("cleanup.policy", "delete").split(",")}
    return FoundTopic(
        name=topic.name,
        facts=SourceTopic(
            topic_id=topic.topic_id,
            partitions_count=len(topic.partitions),
            compacts=not COMPACTS.isdisjoint(policy),
            deletes="delete" in policy,
            delete_retention_ms=int(effective.get("delete.retention.ms", "86400000")),
            holds_tombstones=_holds(effective.get(COMPACTION_HOLD, ""), spec.group),
        ),
        overrides=overrides_of(
            {each.name for each in configs.configs if each.config_source == SET_ON_TOPIC}, effective
        ),
        leaders={
            each.partition_index: addresses[each.leader_id]
            for each in topic.partitions
            if each.leader_id in addresses
        },
        leader_epochs={each.partition_index: each.leader_epoch for each in topic.partitions},
        leader_ids={
            each.partition_index: each.leader_id
            for each in topic.partitions
            if each.leader_id in addresses
        },
    )


def overrides_of(overridden: Iterable[str], effective: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that a mirror gets.

    Args:
        overridden: the names that the source's topic overrides.
        effective: all its properties.
    """
    known = fields_by_property(LogConfig).keys()
    names = (set(overridden) | ALWAYS) & known & effective.keys()
    return {
        name: effective[name] for name in sorted(names - STAY) if not name.startswith("mirror.")
    }


def _holds(groups: str, group: str) -> bool:
    """Returns whether a list of groups, each a name or a prefix with `*`, names a group."""
    return any(
        group.startswith(each[:-1]) if each.endswith("*") else each == group
        for each in map(str.strip, groups.split(","))
        if each
    )

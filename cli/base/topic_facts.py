"""Asks a broker about topics, for commands: their partitions, offsets, sizes and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cli.base.broker_client import BrokerClient
from cli.base.command_end import EXIT_FAILED, CommandFailed, complain
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.wire.api_keys import ApiKey
from protocol.wire.error_codes import ErrorCode
from server.config.near_names import hint
from storage.formats.compaction_strategy import (
    BY_OFFSET,
    STRATEGY,
    STRATEGY_PROPERTIES,
    CompactionStrategy,
    strategy_from,
)

EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets: the log start offset, and the high watermark."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""With READ_COMMITTED, LATEST is the last stable offset."""
TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE = 2, 4, 8

Parts = Mapping[str, Sequence[int]]
"""Partition numbers by topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFound:
    """The answer of ListOffsets for one partition."""

    error: int = ErrorCode.NONE
    offset: int = -1
    """-1: no such offset, or an error."""
    leader_epoch: int = -1

    @property
    def is_known(self) -> bool:
        return self.error == ErrorCode.NONE and self.offset >= 0


async def describe(
    client: BrokerClient, names: Iterable[str] | None
) -> list[MetadataResponseTopic]:
    """Returns the broker's metadata of topics, sorted by name; of all topics if `names` is None.

    Raises:
        CommandFailed: one of `names` does not exist.
    """
    asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(
        topics=None if asked is None else tuple(asked), allow_auto_topic_creation=False
    )
    answer = await client.call(request, MetadataResponse)
    for topic in answer.topics:
        if names is not None and topic.error_code:
            raise CommandFailed(
                EXIT_FAILED, await topic_error(client, str(topic.name), topic.error_code)
            )
    return sorted(answer.topics, key=lambda topic: str(topic.name))


async def cluster_id_of(client: BrokerClient) -> str | None:
    """Returns the id of the broker's cluster."""
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    return (await client.call(request, MetadataResponse)).cluster_id


async def topic_names(client: BrokerClient) -> list[str]:
    """Returns the names of all topics, sorted."""
    return [str(topic.name) for topic in await describe(client, None)]


def parts_of(topics: Iterable[MetadataResponseTopic]) -> dict[str, list[int]]:
    """Returns the sorted partition numbers of each topic."""
    return {
        str(topic.name): sorted(partition.partition_index for partition in topic.partitions)
        for topic in topics
    }


async def offsets_at(
    client: BrokerClient, parts: Parts, timestamp: int, isolation: int = READ_UNCOMMITTED
) -> dict[tuple[str, int], OffsetFound]:
    """Returns each partition's first offset at or after `timestamp`, in ms.

    `timestamp` may also be EARLIEST or LATEST.
    """
    asked = tuple(
        ListOffsetsTopic(
            name=name,
            partitions=tuple(
                ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                for number in numbers
            ),
        )
        for name, numbers in parts.items()
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=asked)
    answer = await client.call(request, ListOffsetsResponse)
    return {
        (topic.name, part.partition_index): OffsetFound(
            error=part.error_code, offset=part.offset, leader_epoch=part.leader_epoch
        )
        for topic in answer.topics
        for part in topic.partitions
    }


async def sizes_of(client: BrokerClient, parts: Parts) -> dict[tuple[str, int], int]:
    """Returns the size in bytes of each partition's segments.

    Offline partitions are missing. A broker without DescribeLogDirs gives an empty dict.
    """
    if not client.serves(ApiKey.DESCRIBE_LOG_DIRS):
        return {}
    asked = tuple(
        DescribableLogDirTopic(topic=name, partitions=tuple(numbers))
        for name, numbers in parts.items()
    )
    answer = await client.call(DescribeLogDirsRequest(topics=asked), DescribeLogDirsResponse)
    return {
        (topic.name, part.partition_index): part.partition_size
        for directory in answer.results
        for topic in directory.topics
        for part in topic.partitions
        if not part.is_future_key
    }


async def configs_of(
    client: BrokerClient,
    resource_type: int,
    names: Iterable[str],
    keys: Sequence[str] | None = None,
    *,
    is_full: bool = False,
) -> list[DescribeConfigsResult]:
    """Returns the settings of topics or brokers, in order.

    `is_full` adds the synonyms and the documentation.
    """
    asked = tuple(
        DescribeConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configuration_keys=None if keys is None else tuple(keys),
        )
        for name in names
    )
    request = DescribeConfigsRequest(
        resources=asked, include_synonyms=is_full, include_documentation=is_full
    )
    return list((await client.call(request, DescribeConfigsResponse)).results)


async def is_compacted(client: BrokerClient, topic: str) -> bool:
    """Returns whether the topic is compacted, so its records need keys."""
    (result,) = await configs_of(client, TOPIC_RESOURCE, [topic], ["cleanup.policy"])
    return any("compact" in (config.value or "") for config in result.configs)


async def strategy_of(client: BrokerClient, topic: str) -> CompactionStrategy:
    """Returns how the topic ranks the records of a key; Apache Kafka ranks them by offset.

    Raises:
        CommandFailed: this release does not know the topic's strategy.
    """
    (result,) = await configs_of(client, TOPIC_RESOURCE, [topic], STRATEGY_PROPERTIES)
    if result.error_code:
        why = refusal(result.error_code, result.error_message)
        complain(
            f"{topic}: taking the highest offset of a key, as its settings are not readable: {why}"
        )
        return BY_OFFSET
    try:
        return strategy_from({config.name: config.value or "" for config in result.configs})
    except ValueError as error:
        raise CommandFailed(EXIT_FAILED, f"{topic}: unknown {STRATEGY}: {error}") from error


def refusal(code: int, message: str | None) -> str:
    """Returns why a broker refused: its message if it sent one, else Kafka's text for the code."""
    if message:
        return message.rstrip(".")
    known = _known(code)
    return f"error {code}" if known is None else known.message.rstrip(".")


def error_name(code: int) -> str:
    """Returns Kafka's name of an error code."""
    known = _known(code)
    return f"ERROR_{code}" if known is None else known.name


async def topic_error(
    client: BrokerClient, topic: str, code: int, message: str | None = None
) -> str:
    """Returns the error text for a topic, with a suggestion if a similar topic exists."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        suggestion = hint(topic, await topic_names(client))
        return f"there is no topic {topic}{suggestion or '; kompakt topics list shows all topics'}"
    return f"{topic}: {refusal(code, message)}"


def _known(code: int) -> ErrorCode | None:
    try:
        return ErrorCode(code)
    except ValueError:
        return None

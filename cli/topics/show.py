"""Carries out `kompakt topics list` and `describe`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from cleaner.rules.text import size_text
from cli.base.broker_client import BrokerClient, connected
from cli.base.output import count_cell, print_json, print_table
from cli.base.topic_facts import (
    EARLIEST,
    LATEST,
    TOPIC_RESOURCE,
    OffsetFound,
    configs_of,
    describe,
    error_name,
    offsets_at,
    parts_of,
    sizes_of,
)
from cli.compact.output import debt_text
from cli.topics.counts import records_of, tombstones_of
from protocol.messages.describe_configs import DescribeConfigsResult
from protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from protocol.wire.error_codes import ErrorCode
from server.config.value_source import ConfigSource
from storage.files.paths import topic_id_text

POLICY = "cleanup.policy"
NOTHING = "-"

Json = dict[str, Any]


async def show_list(bootstrap: str, *, with_internal: bool, as_json: bool) -> int:
    """Print one row per topic."""
    async with connected(bootstrap) as client:
        topics = [
            topic
            for topic in await describe(client, None)
            if with_internal or not topic.is_internal
        ]
        policies = await _policies(client, topics)
        partitions = await _partitions(client, topics)
    rows = [
        {
            "topic": str(topic.name),
            "topic_id": topic_id_text(topic.topic_id),
            "is_internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "cleanup_policy": policies.get(str(topic.name)),
            "offsets": _offsets_count(partitions[str(topic.name)]),
            "bytes": _total_bytes(partitions[str(topic.name)]),
        }
        for topic in topics
    ]
    if as_json:
        print_json({"topics": rows})
    elif rows:
        titles = ("topic", "partitions", "cleanup.policy", "offsets", "size")
        print_table(titles, [_list_row(row) for row in rows], texts={"topic", "cleanup.policy"})
    else:
        typer.echo("there are no topics; create one with kompakt topics create")
    return 0


def _list_row(row: Json) -> tuple[str, ...]:
    return (
        row["topic"],
        str(row["partitions"]),
        row["cleanup_policy"] or NOTHING,
        f"{row['offsets']:,}",
        _size_cell(row["bytes"]),
    )


def _offsets_count(partitions: Iterable[Json]) -> int:
    """Returns the total of offsets between starts and ends; a compacted log has fewer records."""
    return sum(
        row["end_offset"] - row["start_offset"]
        for row in partitions
        if row["start_offset"] is not None and row["end_offset"] is not None
    )


def _total_bytes(partitions: Iterable[Json]) -> int | None:
    """Returns the total size of the partitions whose size is known, or None."""
    known = [row["bytes"] for row in partitions if row["bytes"] is not None]
    return sum(known) if known else None


def _size_cell(count: int | None) -> str:
    return NOTHING if count is None else size_text(count)


async def _policies(
    client: BrokerClient, topics: Iterable[MetadataResponseTopic]
) -> dict[str, str | None]:
    names = [str(topic.name) for topic in topics]
    results = await configs_of(client, TOPIC_RESOURCE, names, [POLICY])
    return {result.resource_name: config.value for result in results for config in result.configs}


async def show_topics(bootstrap: str, url: str, names: Sequence[str], *, as_json: bool) -> int:
    """Print the settings and the partitions of topics; of compacted ones, also what is counted."""
    async with connected(bootstrap) as client:
        topics = await describe(client, names)
        configs = await configs_of(client, TOPIC_RESOURCE, [str(topic.name) for topic in topics])
        partitions = await _partitions(client, topics)
    described = [
        {
            "topic": str(topic.name),
            "topic_id": topic_id_text(topic.topic_id),
            "is_internal": topic.is_internal,
            "configs": _own_configs(result),
            "partitions": partitions[str(topic.name)],
        }
        for topic, result in zip(topics, configs, strict=True)
    ]
    for topic in described:
        is_compacted = _is_compacted(topic)
        topic["tombstones"] = await tombstones_of(url, topic) if is_compacted else None
        _add_records(topic, await records_of(url, topic) if is_compacted else None)
    if as_json:
        print_json({"topics": described})
    else:
        for topic in described:
            _print_topic(topic)
    return 0


def _add_records(topic: Json, counted: Json | None) -> None:
    """Add the counts of records to a topic and to its partitions; null where they are not known."""
    known = {each["partition"]: each for each in (counted or {}).get("partitions", ())}
    for row in topic["partitions"]:
        found = known.get(row["partition"], {})
        row["first_live_offset"] = found.get("first_live_offset")
        row["records"] = found.get("records")
        row["records_are_exact"] = found.get("is_exact")
    names = ("records", "is_exact", "error")
    told = None if counted is None else {name: counted[name] for name in names if name in counted}
    topic["records"] = told


def _own_configs(result: DescribeConfigsResult) -> list[Json]:
    """Returns the settings of the topic itself, and always its cleanup policy."""
    return [
        {
            "name": config.name,
            "value": config.value,
            "source": ConfigSource.of(config.config_source).name,
        }
        for config in result.configs
        if config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG or config.name == POLICY
    ]


def _print_topic(topic: Json) -> None:
    typer.echo(f"{topic['topic']}  (id {topic['topic_id']})")
    for config in topic["configs"]:
        source = ConfigSource[config["source"]]
        where = "" if source == ConfigSource.DYNAMIC_TOPIC_CONFIG else f"  ({source.words})"
        typer.echo(f"  {config['name']}={config['value']}{where}")
    if topic["records"] is None:
        titles = ("partition", "leader", "start offset", "end offset", "offsets", "size", "state")
        print_table(titles, [_partition_row(row) for row in topic["partitions"]], texts={"state"})
    else:
        _print_compacted(topic)
    owed = topic["tombstones"]
    if owed is not None:
        typer.echo(f"tombstones: {owed['error']}" if "error" in owed else debt_text(owed))


def _print_compacted(topic: Json) -> None:
    """Print the partitions with their records, under short titles."""
    titles = (
        "partition",
        "leader",
        "start",
        "first live",
        "end",
        "offsets",
        "records",
        "size",
        "state",
    )
    rows = []
    for row in topic["partitions"]:
        partition, leader, start, end, offsets, size, state = _partition_row(row)
        first = row["first_live_offset"]
        live = NOTHING if first is None else str(first)
        records = count_cell(row["records"], is_exact=row["records_are_exact"])
        rows.append((partition, leader, start, live, end, offsets, records, size, state))
    print_table(titles, rows, texts={"state"})
    if "error" in topic["records"]:
        typer.echo(f"records: {topic['records']['error']}")


def _is_compacted(topic: Json) -> bool:
    policies = (each["value"] for each in topic["configs"] if each["name"] == POLICY)
    return any("compact" in str(value).split(",") for value in policies)


def _partition_row(row: Json) -> tuple[str, ...]:
    start, end = row["start_offset"], row["end_offset"]
    known = start is not None and end is not None
    return (
        str(row["partition"]),
        NOTHING if row["leader"] is None else str(row["leader"]),
        str(start) if known else NOTHING,
        str(end) if known else NOTHING,
        f"{end - start:,}" if known else NOTHING,
        _size_cell(row["bytes"]),
        row["error"] or "online",
    )


async def _partitions(
    client: BrokerClient, topics: Iterable[MetadataResponseTopic]
) -> dict[str, list[Json]]:
    """Returns the rows of each topic's partitions, sorted."""
    known = list(topics)
    parts = parts_of(known)
    starts = await offsets_at(client, parts, EARLIEST)
    ends = await offsets_at(client, parts, LATEST)
    sizes = await sizes_of(client, parts)

    def row(name: str, part: MetadataResponsePartition) -> Json:
        place = name, part.partition_index
        return _partition(part, starts[place], ends[place], sizes.get(place))

    return {
        str(topic.name): [
            row(str(topic.name), part)
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ]
        for topic in known
    }


def _partition(
    part: MetadataResponsePartition, start: OffsetFound, end: OffsetFound, size: int | None
) -> Json:
    error = next(filter(None, (part.error_code, start.error, end.error)), ErrorCode.NONE)
    return {
        "partition": part.partition_index,
        "leader": part.leader_id if part.leader_id >= 0 else None,
        "leader_epoch": part.leader_epoch,
        "replicas": list(part.replica_nodes),
        "in_sync_replicas": list(part.isr_nodes),
        "offline_replicas": list(part.offline_replicas),
        "start_offset": start.offset if start.is_known else None,
        "end_offset": end.offset if end.is_known else None,
        "bytes": size,
        "error": error_name(error) if error else None,
    }

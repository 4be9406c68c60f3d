"""What `kompakt topics create`, `delete` and `delete-records` ask of a broker, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer

from cleaner.text import count_text
from protocol.error_codes import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from server.broker_client import connected
from server.command_end import EXIT_FAILED, CommandFailed, complain, confirm
from server.command_output import print_json
from server.near_names import hint
from server.topic_facts import describe, is_compacted, refusal, topic_names
from storage.paths import topic_id_text

TIMEOUT_MS = 30_000
BROKERS_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as it is asked for."""

    name: str
    partitions: int | None
    """None: as many as the broker's num.partitions says."""
    configs: Mapping[str, str]
    dry_run: bool


async def create_topic(bootstrap: str, new: NewTopic, *, if_not_exists: bool, as_json: bool) -> int:
    """Create a topic; the exit code."""
    asked = CreatableTopic(
        name=new.name,
        num_partitions=BROKERS_DEFAULT if new.partitions is None else new.partitions,
        replication_factor=BROKERS_DEFAULT,
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in new.configs.items()
        ),
    )
    request = CreateTopicsRequest(topics=(asked,), timeout_ms=TIMEOUT_MS, validate_only=new.dry_run)
    async with connected(bootstrap) as client:
        (result,) = (await client.call(request, CreateTopicsResponse)).topics
    is_there = result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    if result.error_code and not (is_there and if_not_exists):
        raise CommandFailed(
            EXIT_FAILED, f"{new.name}: {refusal(result.error_code, result.error_message)}"
        )
    _say_created(new, result, is_there=is_there, as_json=as_json)
    return 0


def _say_created(
    new: NewTopic, result: CreatableTopicResult, *, is_there: bool, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "topic": result.name,
                "topic_id": None if is_there else topic_id_text(result.topic_id),
                "partitions": None if is_there else result.num_partitions,
                "is_created": not is_there and not new.dry_run,
            }
        )
    elif is_there:
        typer.echo(f"{new.name} is there already; nothing was changed")
    else:
        settings = "".join(f", {name}={value}" for name, value in new.configs.items())
        verb = "would create" if new.dry_run else "created"
        many = count_text(result.num_partitions, "partition")
        typer.echo(f"{verb} {new.name} with {many}{settings}")


async def delete_topics(
    bootstrap: str, names: Sequence[str], *, if_exists: bool, as_json: bool
) -> int:
    """Delete topics; the exit code is 1 if one could not be deleted."""
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name) for name in names),
        topic_names=tuple(names),
        timeout_ms=TIMEOUT_MS,
    )
    async with connected(bootstrap) as client:
        results = (await client.call(request, DeleteTopicsResponse)).responses
        there = await topic_names(client)
    codes = {str(result.name): result.error_code for result in results}
    deleted = [name for name in names if not codes.get(name)]
    if as_json:
        print_json({"deleted": deleted})
    for name in () if as_json else deleted:
        typer.echo(f"deleted {name}")
    failed = 0
    for result in results:
        is_absent = result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if result.error_code and not (is_absent and if_exists):
            name = str(result.name)
            told = refusal(result.error_code, None if is_absent else result.error_message)
            why = f"there is no such topic{hint(name, there)}" if is_absent else told
            complain(f"{name}: {why}")
            failed = EXIT_FAILED
    return failed


async def add_partitions(
    bootstrap: str, topic: str, count: int, *, is_confirmed: bool, dry_run: bool, as_json: bool
) -> int:
    """Give a topic `count` partitions in all; the exit code."""
    asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=(asked,), timeout_ms=TIMEOUT_MS, validate_only=dry_run)
    async with connected(bootstrap) as client:
        (found,) = await describe(client, [topic])
        if not dry_run and not is_confirmed and await is_compacted(client, topic):
            confirm(
                f"{topic} is compacted: keys that move to a new partition leave their last value"
                " in the old one. Go on?"
            )
        (result,) = (await client.call(request, CreatePartitionsResponse)).results
    if result.error_code:
        why = refusal(result.error_code, result.error_message)
        raise CommandFailed(EXIT_FAILED, f"{topic}: {why}")
    before = len(found.partitions)
    if as_json:
        row = {"topic": topic, "partitions_before": before, "partitions": count}
        print_json({**row, "is_changed": not dry_run})
    else:
        verb = "would have" if dry_run else "has"
        typer.echo(f"{topic} {verb} {count_text(count, 'partition')}, {before} before")
    return 0


async def delete_records_before(
    bootstrap: str, topic: str, *, partition: int, offset: int, as_json: bool
) -> int:
    """Move a partition's log start offset; the exit code."""
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=(part,)),), timeout_ms=TIMEOUT_MS
    )
    async with connected(bootstrap) as client:
        await describe(client, [topic])
        answer = await client.call(request, DeleteRecordsResponse)
    (result,) = answer.topics[0].partitions
    if result.error_code:
        raise CommandFailed(EXIT_FAILED, f"{topic}-{partition}: {_why_kept(result.error_code)}")
    start = result.low_watermark
    if as_json:
        print_json({"topic": topic, "partition": partition, "start_offset": start})
    else:
        typer.echo(f"{topic}-{partition} begins at offset {start} now")
    return 0


def _why_kept(code: int) -> str:
    if code == ErrorCode.POLICY_VIOLATION:
        return (
            "its cleanup.policy has no delete, so records go by compaction only:"
            " produce tombstones for keys that shall go"
        )
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return "the offset is beyond the end; kompakt topics describe shows where it is"
    return refusal(code, None)

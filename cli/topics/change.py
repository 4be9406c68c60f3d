"""Carries out the commands of `kompakt topics` that change topics, and prints the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer

from cleaner.rules.harmful_settings import Harm
from cleaner.rules.text import count_text
from cli.base.broker_client import connected
from cli.base.command_end import EXIT_FAILED, CommandFailed, complain, confirm
from cli.base.output import print_json
from cli.base.topic_facts import describe, is_compacted, refusal, topic_names
from cli.base.topic_warnings import harms_of
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
from protocol.wire.error_codes import ErrorCode
from server.config.near_names import hint
from storage.files.paths import topic_id_text

TIMEOUT_MS = 30_000
BROKERS_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int | None
    """None: the broker's num.partitions."""
    configs: Mapping[str, str]
    dry_run: bool


async def create_topic(bootstrap: str, new: NewTopic, *, if_not_exists: bool, as_json: bool) -> int:
    """Create a topic, and return the exit code."""
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
    exists = result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    if result.error_code and not (exists and if_not_exists):
        raise CommandFailed(
            EXIT_FAILED, f"{new.name}: {refusal(result.error_code, result.error_message)}"
        )
    settings = {config.name: config.value for config in result.configs or ()} or new.configs
    harms = () if exists else harms_of(settings)
    _print_created(new, result, harms, exists=exists, as_json=as_json)
    return 0


def _print_created(
    new: NewTopic,
    result: CreatableTopicResult,
    harms: Sequence[Harm],
    *,
    exists: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            {
                "topic": result.name,
                "topic_id": None if exists else topic_id_text(result.topic_id),
                "partitions": None if exists else result.num_partitions,
                "is_created": not exists and not new.dry_run,
                "warnings": [str(harm) for harm in harms],
            }
        )
    elif exists:
        typer.echo(f"{new.name} already exists; nothing was changed")
    else:
        settings = "".join(f", {name}={value}" for name, value in new.configs.items())
        verb = "would create" if new.dry_run else "created"
        many = count_text(result.num_partitions, "partition")
        typer.echo(f"{verb} {new.name} with {many}{settings}")
        for harm in harms:
            complain(f"warning: {harm}")


async def delete_topics(
    bootstrap: str, names: Sequence[str], *, if_exists: bool, as_json: bool
) -> int:
    """Delete topics. Returns the exit code: 1 if one could not be deleted."""
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name) for name in names),
        topic_names=tuple(names),
        timeout_ms=TIMEOUT_MS,
    )
    async with connected(bootstrap) as client:
        results = (await client.call(request, DeleteTopicsResponse)).responses
        remaining = await topic_names(client)
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
            reason = (
                f"there is no such topic{hint(name, remaining)}"
                if is_absent
                else refusal(result.error_code, result.error_message)
            )
            complain(f"{name}: {reason}")
            failed = EXIT_FAILED
    return failed


async def add_partitions(
    bootstrap: str, topic: str, count: int, *, is_confirmed: bool, dry_run: bool, as_json: bool
) -> int:
    """Raise the number of partitions of a topic to `count`, and return the exit code."""
    asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=(asked,), timeout_ms=TIMEOUT_MS, validate_only=dry_run)
    async with connected(bootstrap) as client:
        (found,) = await describe(client, [topic])
        if not dry_run and not is_confirmed and await is_compacted(client, topic):
            confirm(
                f"{topic} is compacted: keys that move to a new partition leave their last value"
                " in the old one. Continue?"
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
    """Move a partition's log start offset, and return the exit code."""
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=(part,)),), timeout_ms=TIMEOUT_MS
    )
    async with connected(bootstrap) as client:
        await describe(client, [topic])
        answer = await client.call(request, DeleteRecordsResponse)
    (result,) = answer.topics[0].partitions
    if result.error_code:
        raise CommandFailed(EXIT_FAILED, f"{topic}-{partition}: {_delete_error(result.error_code)}")
    start = result.low_watermark
    if as_json:
        print_json({"topic": topic, "partition": partition, "start_offset": start})
    else:
        typer.echo(f"{topic}-{partition} now begins at offset {start}")
    return 0


def _delete_error(code: int) -> str:
    if code == ErrorCode.POLICY_VIOLATION:
        return (
            "its cleanup.policy does not include delete, so only compaction removes records:"
            " produce tombstones for the keys to remove"
        )
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return "the offset is beyond the end; kompakt topics describe shows the end offset"
    return refusal(code, None)

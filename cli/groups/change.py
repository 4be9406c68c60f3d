"""Carries out the commands of `kompakt groups` that reset offsets and delete groups or offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from cleaner.rules.text import count_text
from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed, complain
from cli.base.output import print_json, print_table
from cli.base.topic_facts import describe, offsets_at, parts_of, refusal
from cli.groups.describe import Part, by_topic, group_of, missing_group_text, refuse_running
from cli.groups.facts import BY_NAME_MAX, bounds_of, committed_of
from cli.groups.reset_offsets import Aim, Goal, Reset, new_offset, parse_parts
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.wire.error_codes import ErrorCode

NOTHING = "-"

Json = dict[str, Any]


async def reset_offsets(
    bootstrap: str,
    group: str,
    topics: Sequence[str],
    goal: Goal,
    *,
    is_executed: bool,
    as_json: bool,
) -> int:
    """Show the new offsets of a group and, if `is_executed`, commit them. Returns the exit code.

    Without topics, resets all committed offsets. With topics, the group need not exist yet.
    """
    async with connected(bootstrap) as client:
        committed = await committed_of(client, group)
        parts = await _parts(client, topics) if topics else set(committed)
        if not parts:
            await group_of(client, group)
            raise CommandFailed(EXIT_USAGE, f"{group} has committed no offsets yet: add --topic")
        resets = await _resets(client, parts, committed, goal)
        if is_executed:
            await _commit(client, group, resets)
    _print_resets(group, resets, is_executed=is_executed, as_json=as_json)
    return 0


async def _parts(client: BrokerClient, texts: Iterable[str]) -> set[Part]:
    """Returns the partitions that TOPIC and TOPIC:0,2 name. Raises CommandFailed."""
    wanted = dict(map(_parse, texts))
    existing = parts_of(await describe(client, wanted))
    for topic, numbers in wanted.items():
        missing = sorted(set(numbers or ()) - set(existing[topic]))
        if missing:
            raise CommandFailed(
                EXIT_FAILED, f"{topic} has no partition {missing[0]}: it has {len(existing[topic])}"
            )
    return {
        (topic, number)
        for topic, numbers in wanted.items()
        for number in (existing[topic] if numbers is None else numbers)
    }


def _parse(text: str) -> tuple[str, tuple[int, ...] | None]:
    try:
        return parse_parts(text)
    except ValueError:
        raise CommandFailed(
            EXIT_USAGE, f"--topic {text}: write TOPIC, or TOPIC:0,2 for some of its partitions"
        ) from None


async def _resets(
    client: BrokerClient, parts: set[Part], committed: dict[Part, int], goal: Goal
) -> list[Reset]:
    bounds = await bounds_of(client, parts)
    missing = sorted(parts - bounds.keys())
    if missing:
        topic, number = missing[0]
        raise CommandFailed(
            EXIT_FAILED,
            f"{topic}-{number} does not exist or is offline: choose other partitions with --topic",
        )
    at_moment = (
        await offsets_at(client, by_topic(parts), goal.number) if goal.aim == Aim.MOMENT else {}
    )
    return [
        Reset(
            topic=part[0],
            partition=part[1],
            committed=committed.get(part),
            offset=new_offset(
                goal,
                committed=committed.get(part),
                start=bounds[part][0],
                end=bounds[part][1],
                at_moment=at_moment[part].offset if at_moment else None,
            ),
        )
        for part in sorted(parts)
    ]


async def _commit(client: BrokerClient, group: str, resets: Iterable[Reset]) -> None:
    """Commit offsets without being a member, which the broker accepts while the group has none."""
    offsets = {(reset.topic, reset.partition): reset.offset for reset in resets}
    request = OffsetCommitRequest(
        group_id=group,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[topic, number],
                        committed_metadata="",
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in by_topic(offsets).items()
        ),
    )
    answer = await client.call(request, OffsetCommitResponse, version_max=BY_NAME_MAX)
    for topic in answer.topics:
        for part in topic.partitions:
            await _check_committed(client, group, part.error_code)


async def _check_committed(client: BrokerClient, group: str, code: int) -> None:
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        refuse_running(await group_of(client, group), "offsets can only be reset")
    if code:
        raise CommandFailed(EXIT_FAILED, f"{group}: {refusal(code, None)}")


def _print_resets(group: str, resets: Sequence[Reset], *, is_executed: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed_offset": each.committed,
                "new_offset": each.offset,
            }
            for each in resets
        ]
        print_json({"group": group, "is_executed": is_executed, "partitions": rows})
        return
    titles = ("partition", "committed", "new offset", "moves by")
    print_table(titles, list(map(_row, resets)), texts={"partition"})
    count = f"{count_text(sum(each.is_change for each in resets), 'offset')} of {group}"
    typer.echo(f"{count} set" if is_executed else f"{count} would be set; --execute sets them")


def _row(each: Reset) -> tuple[str, ...]:
    known = each.committed is not None
    return (
        f"{each.topic}-{each.partition}",
        str(each.committed) if known else NOTHING,
        str(each.offset),
        f"{each.offset - (each.committed or 0):+,}" if known else NOTHING,
    )


async def delete_groups(bootstrap: str, names: Sequence[str], *, as_json: bool) -> int:
    """Delete groups with their offsets. Returns the exit code: 1 if one could not be deleted."""
    async with connected(bootstrap) as client:
        request = DeleteGroupsRequest(groups_names=tuple(names))
        results = (await client.call(request, DeleteGroupsResponse)).results
    deleted = [result.group_id for result in results if not result.error_code]
    if as_json:
        print_json({"deleted": deleted})
    for name in () if as_json else deleted:
        typer.echo(f"deleted {name}")
    for result in results:
        if result.error_code:
            complain(_delete_error(result.group_id, result.error_code))
    return EXIT_FAILED if len(deleted) < len(results) else 0


def _delete_error(group: str, code: int) -> str:
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return missing_group_text(group)
    if code == ErrorCode.NON_EMPTY_GROUP:
        return f"{group} has members: stop them first; kompakt groups describe {group} shows them"
    return f"{group}: {refusal(code, None)}"


async def delete_offsets(
    bootstrap: str, group: str, topics: Sequence[str], *, as_json: bool
) -> int:
    """Delete a group's committed offsets of topics, and return the exit code."""
    async with connected(bootstrap) as client:
        await group_of(client, group)
        committed = await committed_of(client, group)
        parts = _committed_parts(group, topics, committed)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                    ),
                )
                for topic, numbers in by_topic(parts).items()
            ),
        )
        answer = await client.call(request, OffsetDeleteResponse)
    codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    code = next(filter(None, (answer.error_code, *codes)), 0)
    if code:
        raise CommandFailed(EXIT_FAILED, _delete_offsets_error(group, code))
    names = [f"{topic}-{number}" for topic, number in sorted(parts)]
    if as_json:
        print_json({"group": group, "deleted": names})
    else:
        typer.echo(f"deleted the offsets of {group} for {', '.join(names)}")
    return 0


def _committed_parts(group: str, texts: Iterable[str], committed: Iterable[Part]) -> set[Part]:
    """Returns the named partitions that have committed offsets. Their topics may be deleted."""
    known = set(committed)
    found: set[Part] = set()
    for topic, numbers in map(_parse, texts):
        named = {part for part in known if part[0] == topic and (not numbers or part[1] in numbers)}
        if not named:
            raise CommandFailed(EXIT_FAILED, f"{group} has no committed offsets for {topic}")
        found |= named
    return found


def _delete_offsets_error(group: str, code: int) -> str:
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return f"{group} has members that read the topic: stop them first"
    return _delete_error(group, code)

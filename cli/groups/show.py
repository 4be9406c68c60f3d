"""Carries out `kompakt groups list` and `describe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from cleaner.rules.text import count_text
from cli.base.broker_client import connected
from cli.base.output import count_cell, print_json, print_table
from cli.base.topic_facts import cluster_id_of
from cli.groups.describe import Group, GroupMember, group_of
from cli.groups.facts import Progress, list_groups, progress_of
from cli.groups.record_lag import RecordLag, progress_text, record_lag_of

NOTHING = "-"

Json = dict[str, Any]


async def show_list(bootstrap: str, *, as_json: bool) -> int:
    """Print one row per group."""
    async with connected(bootstrap) as client:
        groups = await list_groups(client)
    rows = [
        {
            "group": group.group_id,
            "state": group.group_state,
            "type": group.group_type,
            "protocol_type": group.protocol_type,
        }
        for group in groups
    ]
    if as_json:
        print_json({"groups": rows})
    elif rows:
        titles = ("group", "state", "type", "protocol")
        cells = [(*list(row.values())[:3], row["protocol_type"] or NOTHING) for row in rows]
        print_table(titles, cells, texts=titles)
    else:
        typer.echo("there are no groups")
    return 0


async def show_groups(bootstrap: str, url: str, names: Sequence[str], *, as_json: bool) -> int:
    """Print the offsets, the lag and the members of groups."""
    async with connected(bootstrap) as client:
        groups = [await group_of(client, name) for name in names]
        progress = [await progress_of(client, group) for group in groups]
        cluster_id = await cluster_id_of(client)
    lags = [
        await record_lag_of(url, group.group_id, cluster_id)
        if _has_committed(parts)
        else RecordLag()
        for group, parts in zip(groups, progress, strict=True)
    ]
    described = zip(groups, progress, lags, strict=True)
    if as_json:
        print_json({"groups": [_json(*each) for each in described]})
    else:
        for each in described:
            _print_group(*each)
    return 0


def _has_committed(progress: Sequence[Progress]) -> bool:
    return any(each.committed is not None for each in progress)


def _json(group: Group, progress: Sequence[Progress], records: RecordLag) -> Json:
    is_known = records.error is None
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "lag": _total(progress),
        "record_lag": records.lag if is_known else None,
        "records": records.records if is_known else None,
        "record_lag_is_exact": records.is_exact if is_known else None,
        "record_lag_error": records.error,
        "partitions": [
            {
                "topic": each.part[0],
                "partition": each.part[1],
                "committed_offset": each.committed,
                "start_offset": each.start,
                "end_offset": each.end,
                "lag": each.lag,
                **_record_json(each, records),
                "member_id": None if each.member is None else each.member.member_id,
            }
            for each in progress
        ],
        "members": [_member_json(member) for member in group.members],
    }


def _record_json(each: Progress, records: RecordLag) -> Json:
    found = records.parts.get(each.part)
    return {
        "record_lag": None if found is None else found.lag,
        "records": None if found is None else found.records,
        "record_lag_is_exact": None if found is None else found.is_exact,
    }


def _member_json(member: GroupMember) -> Json:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
    }


def _print_group(group: Group, progress: Sequence[Progress], records: RecordLag) -> None:
    members = count_text(len(group.members), "member")
    protocol = f", {group.protocol}" if group.protocol else ""
    typer.echo(f"{group.group_id}: {group.state}, {members}{protocol}, lag {_total(progress):,}")
    if progress:
        titles = ("partition", "committed", "end offset", "lag", "record lag", "member")
        rows = [_row(each, records) for each in progress]
        print_table(titles, rows, texts={"partition", "member"})
    if records.error is not None:
        typer.echo(f"record lag: {records.error}")
    elif records.parts:
        others = sum(each.part not in records.parts for each in progress if each.end != each.start)
        typer.echo(progress_text(records, others=others))
    idle = _without_partitions(group)
    if idle:
        typer.echo(f"without a partition: {', '.join(map(_member_text, idle))}")


def _row(each: Progress, records: RecordLag) -> tuple[str, ...]:
    found = records.parts.get(each.part)
    return (
        f"{each.part[0]}-{each.part[1]}",
        _number(each.committed),
        _number(each.end),
        count_cell(each.lag, is_exact=True),
        NOTHING if found is None else count_cell(found.lag, is_exact=found.is_exact),
        NOTHING if each.member is None else _member_text(each.member),
    )


def _member_text(member: GroupMember) -> str:
    # Not the member id: it is long, and only repeats the client id with a UUID.
    return f"{member.instance_id or member.client_id}@{member.client_host.lstrip('/')}"


def _without_partitions(group: Group) -> list[GroupMember]:
    busy = {member.member_id for member in group.readers.values()}
    return [member for member in group.members if member.member_id not in busy]


def _total(progress: Sequence[Progress]) -> int:
    return sum(each.lag or 0 for each in progress)


def _number(value: int | None) -> str:
    return NOTHING if value is None else str(value)

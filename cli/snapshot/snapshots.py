"""Carries out `kompakt snapshot ...`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from urllib.parse import quote

import typer

from cleaner.rules.text import count_text, moment_text, size_text
from cli.base.command_end import EXIT_FAILED, CommandFailed, complain, confirm
from cli.base.moments import parse_moment
from cli.base.options import names_in
from cli.base.output import print_json, print_table
from cli.compact.client import CallFailed, CompactionClient, Json, connected

ROOT = "/v1/snapshots"
SECONDS_MAX = 24 * 3600.0
"""The broker first makes everything durable that it has, or removes all files."""
COMPLETION_SECONDS_MAX = 2.0
NOT_FOUND = 404

TITLES = ("ID", "AS OF", "TOPICS", "PARTITIONS", "SIZE", "FREED IF DROPPED")
PARTITION_TITLES = ("TOPIC", "PARTITION", "START", "END", "SIZE")


async def create_snapshot(url: str, topics: Sequence[str], at: str | None, *, as_json: bool) -> int:
    """Let the broker make a snapshot, and print what was made. Returns the exit code.

    Args:
        topics: names, each alone or with others after commas; none for all topics.
        at: an earlier time, as users type it; None for now.
    """
    now_ms = time.time_ns() // 1_000_000
    at_ms = None if at is None else parse_moment("--at", at, now_ms=now_ms)
    body = json.dumps({"topics": names_in(topics) or None, "at_ms": at_ms})
    async with connected(url, root=ROOT, seconds_max=SECONDS_MAX) as client:
        made = await client.call("POST", "", body=body)
    if as_json:
        print_json(made)
    else:
        typer.echo(f"{made['id']}: {_contents(made)}, in {made['path'].rpartition('/')[0]}")
    return 0


async def list_all(url: str, *, as_json: bool) -> int:
    """Print the snapshots. Returns 1 if one of them is not complete."""
    async with connected(url, root=ROOT) as client:
        answer = await client.call("GET", "")
    snapshots = answer["snapshots"]
    incomplete = [each for each in snapshots if not each["is_complete"]]
    if as_json:
        print_json(answer)
    elif snapshots:
        print_table(TITLES, [_row(each) for each in snapshots], texts={"ID", "AS OF"})
        # A file in two snapshots is freed only if both are dropped.
        typer.echo(f"only snapshots hold {size_text(answer['pinned_bytes'])} of the disk")
        _complain_of(incomplete)
    else:
        typer.echo("there are no snapshots")
    return EXIT_FAILED if incomplete else 0


async def show_snapshot(url: str, snapshot_id: str, *, as_json: bool) -> int:
    """Print one snapshot. Returns 1 if it is not complete."""
    async with connected(url, root=ROOT) as client:
        snapshot = await _one(client, snapshot_id)
    if as_json:
        print_json(snapshot)
    elif snapshot["is_complete"]:
        _print_one(snapshot)
    else:
        _complain_of([snapshot])
    return 0 if snapshot["is_complete"] else EXIT_FAILED


async def drop_snapshot(url: str, snapshot_id: str, *, is_confirmed: bool, as_json: bool) -> int:
    """Drop a snapshot, once that is confirmed. Returns the exit code."""
    async with connected(url, root=ROOT, seconds_max=SECONDS_MAX) as client:
        snapshot = await _one(client, snapshot_id)
        if not is_confirmed:
            confirm(f"Drop snapshot {snapshot_id}? Nobody can read it afterwards.")
        await client.call("DELETE", _path(snapshot_id))
    if as_json:
        print_json({"id": snapshot_id})
    else:
        typer.echo(f"{snapshot_id}: dropped, {size_text(snapshot['pinned_bytes'])} are free")
    return 0


def ids(url: str) -> list[str]:
    """Returns the ids of the snapshots, for a shell; none if the broker does not answer."""

    async def listed() -> list[str]:
        async with connected(url, root=ROOT, seconds_max=COMPLETION_SECONDS_MAX) as client:
            return [each["id"] for each in (await client.call("GET", ""))["snapshots"]]

    try:
        return asyncio.run(listed())
    except CommandFailed:
        return []


async def _one(client: CompactionClient, snapshot_id: str) -> Json:
    try:
        return await client.call("GET", _path(snapshot_id))
    except CallFailed as refused:
        if refused.status != NOT_FOUND:
            raise
        raise CommandFailed(
            EXIT_FAILED, f"there is no snapshot {snapshot_id}: see kompakt snapshot list"
        ) from refused


def _path(snapshot_id: str) -> str:
    return f"/{quote(snapshot_id, safe='')}"


def _contents(snapshot: Json) -> str:
    topics = count_text(len(snapshot["topics"]), "topic")
    partitions = count_text(snapshot["partitions_count"], "partition")
    then = "" if snapshot["at_ms"] is None else f" as of {moment_text(snapshot['at_ms'])}"
    return f"{topics}, {partitions}, {size_text(snapshot['bytes'])}{then}"


def _row(snapshot: Json) -> list[str]:
    freed = size_text(snapshot["pinned_bytes"])
    if not snapshot["is_complete"]:
        return [snapshot["id"], "not complete", "-", "-", "-", freed]
    return [
        snapshot["id"],
        moment_text(snapshot["created_ms"] if snapshot["at_ms"] is None else snapshot["at_ms"]),
        f"{len(snapshot['topics']):,}",
        f"{snapshot['partitions_count']:,}",
        size_text(snapshot["bytes"]),
        freed,
    ]


def _print_one(snapshot: Json) -> None:
    typer.echo(f"{snapshot['id']}: {_contents(snapshot)}")
    typer.echo(f"created {moment_text(snapshot['created_ms'])}, in {snapshot['path']}")
    typer.echo(f"freed if dropped: {size_text(snapshot['pinned_bytes'])}")
    rows = [
        [
            each["topic"],
            str(each["partition"]),
            f"{each['start_offset']:,}",
            f"{each['end_offset']:,}",
            size_text(each["bytes"]),
        ]
        for each in snapshot["partitions"]
    ]
    print_table(PARTITION_TITLES, rows, texts={"TOPIC"})


def _complain_of(incomplete: Sequence[Json]) -> None:
    for each in incomplete:
        complain(
            f"snapshot {each['id']} is not complete: {each['reason']}. Remove it with kompakt snapshot"
            f" drop {each['id']}"
        )

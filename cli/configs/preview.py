"""Carries out `kompakt configs set --dry-run` and `unset --dry-run`: what the change would do.

The broker validates the change over its Kafka listener. For a topic, its HTTP listener then counts what
retention and compaction would remove. If that does not answer, the change is still valid, and only what
it removes is not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import typer

from cleaner.rules.text import count_text, size_text
from cli.base.broker_client import BrokerClient, connected
from cli.base.command_end import EXIT_FAILED, CommandFailed, complain
from cli.base.output import print_json, print_table
from cli.base.topic_facts import TOPIC_RESOURCE, describe
from cli.compact.client import connected as connected_to
from cli.compact.follow import follow_read_only
from cli.compact.output import name_of
from cli.configs.change import Change, alter, harms_after, settings_before
from cli.configs.target import Target, named
from storage.files.paths import topic_id_text

Json = dict[str, Any]

PARTITIONS_LISTED_MAX = 20
"""Of more partitions, those from which most bytes would go are listed."""

UNCHANGED = "this decides when passes run, or how data is stored: no record goes because of it"


async def preview_configs(
    bootstrap: str, url: str, target: Target, changes: Sequence[Change], *, as_json: bool
) -> int:
    """Print what a change would do, and return the exit code: 1 if a partition could not be counted."""
    async with connected(bootstrap) as client:
        target = await named(client, target)
        before = await settings_before(client, target, changes)
        await alter(client, target, changes, dry_run=True)
        warnings = [str(harm) for harm in await harms_after(client, target, changes)]
        topic_id = await _topic_id(client, target)
    if not as_json:
        typer.echo(f"{target.words}: the broker would accept this; nothing was changed")
    job, unknown = None, None
    if topic_id is not None:
        try:
            job = await _counted(url, str(target.name), topic_id, changes, as_json=as_json)
            warnings = _warnings(job, warnings)
        except CommandFailed as error:
            unknown = f"what it would remove is not known: {error}"
    if as_json:
        rows = [{"name": name, "before": row, "now": row} for name, row in before.items()]
        answer = {"of": target.words, "is_changed": False, "configs": rows, "warnings": warnings}
        print_json(answer | {"preview": job and job["partitions"], "preview_error": unknown})
    elif job is not None:
        print_previews([part for part in job["partitions"] if part["preview"]])
    return _end(job, [] if as_json else warnings, unknown)


def _end(job: Json | None, warnings: Sequence[str], unknown: str | None) -> int:
    """Print to standard error what people should know, and return the exit code."""
    for part in job["partitions"] if job else ():
        if part["error"] is not None:
            complain(f"{name_of(part)}: {part['state']}: {part['error']}")
    for text in (*warnings, *([unknown] if unknown else [])):
        complain(f"warning: {text}")
    return EXIT_FAILED if job is not None and not job["is_done"] else 0


def _warnings(job: Json, otherwise: list[str]) -> list[str]:
    """Returns the broker's warnings, which know its defaults."""
    found = [part["preview"]["warnings"] for part in job["partitions"] if part["preview"]]
    return found[0] if found else otherwise


async def _topic_id(client: BrokerClient, target: Target) -> str | None:
    """Returns the topic's id, as the broker writes it; None if the target is no topic."""
    if target.resource_type != TOPIC_RESOURCE:
        return None
    (topic,) = await describe(client, [str(target.name)])
    return topic_id_text(topic.topic_id)


async def _counted(
    url: str, topic: str, topic_id: str, changes: Sequence[Change], *, as_json: bool
) -> Json:
    """Returns the job that has counted what goes. Raises CommandFailed."""
    asked = [
        {"name": each.name, "operation": each.operation.name.lower(), "value": each.value}
        for each in changes
    ]
    async with connected_to(url) as client:
        job = await client.call(
            "POST",
            f"/topics/{quote(topic, safe='')}/preview",
            # The URL may be another cluster's.
            {"topic_id": topic_id},
            body=json.dumps({"changes": asked}),
        )
        return await follow_read_only(client, job, as_json=as_json)


def print_previews(parts: Sequence[Json]) -> None:
    """Print what a change would remove from each partition, and in all."""
    if not parts:
        return
    first = parts[0]["preview"]
    if not first["changes_deletion"] and not first["changes_compaction"]:
        typer.echo(f"  {UNCHANGED}")
    else:
        for line in _sums([part["preview"] for part in parts]):
            typer.echo(f"  {line}")
        _print_parts(parts)
    for note in first["notes"]:
        typer.echo(f"  {note}")


def _sums(previews: Sequence[Json]) -> Iterator[str]:
    """Yield a line for each way in which records would go, over all partitions."""
    records, size = (sum(each[key] for each in previews) for key in ("records", "bytes"))
    of_all = f"of {count_text(records, 'record')} ({size_text(size)})"
    if previews[0]["changes_deletion"]:
        deleted = [each["deletion"] for each in previews]
        gone = {key: sum(each[key] for each in deleted) for key in deleted[0]}
        yield (
            f"retention would delete {count_text(gone['records'], 'record')}"
            f" ({size_text(gone['bytes'])}) {of_all} at once:"
            f" {count_text(gone['segments_by_age'], 'segment')} by age,"
            f" {gone['segments_by_size']:,} by size"
        )
    if previews[0]["changes_compaction"]:
        passes = [each["compaction"] for each in previews if each["compaction"]]
        dropped, freed, unkeyed, stay = (
            sum(each[key] for each in passes)
            for key in ("records_dropped", "bytes_freed", "unkeyed_dropped", "unkeyed_kept")
        )
        yield (
            f"compaction would drop {count_text(dropped, 'record')} and free {size_text(freed)}"
            f" {of_all}"
        )
        if unkeyed or stay:
            yield (
                f"records without a key: {unkeyed:,} of those dropped, {stay:,} stay"
                " (compaction.unkeyed.records)"
            )


def _print_parts(parts: Sequence[Json]) -> None:
    """Print a row for each partition, or for those from which most goes."""
    shown = sorted(parts, key=lambda part: -_bytes_gone(part["preview"]))[:PARTITIONS_LISTED_MAX]
    print_table(
        ("partition", "records", "size", "deleted", "size", "dropped", "freed", "without key"),
        [_part_row(part) for part in sorted(shown, key=lambda part: int(part["partition"]))],
        texts={"partition"},
    )
    if len(parts) > len(shown):
        others = count_text(len(parts) - len(shown), "partition")
        typer.echo(f"  and {others} from which less goes (--json)")


def _bytes_gone(preview: Json) -> int:
    compaction = preview["compaction"]
    return int(preview["deletion"]["bytes"] + (compaction["bytes_freed"] if compaction else 0))


def _part_row(part: Json) -> tuple[str, ...]:
    preview = part["preview"]
    deleted, compaction = preview["deletion"], preview["compaction"]
    deletion = (f"{deleted['records']:,}", size_text(deleted["bytes"]))
    compacted = ("-", "-", "-")
    if compaction:
        compacted = (
            f"{compaction['records_dropped']:,}",
            size_text(compaction["bytes_freed"]),
            f"{compaction['unkeyed_dropped']:,}",
        )
    return (
        name_of(part),
        f"{preview['records']:,}",
        size_text(preview["bytes"]),
        *(deletion if preview["changes_deletion"] else ("-", "-")),
        *compacted,
    )

"""Prints links and the state of their mirrors."""

from __future__ import annotations

from collections import Counter

import typer

from cleaner.rules.text import count_text, duration_text, size_text
from cli.base.command_end import EXIT_FAILED
from cli.base.output import print_json, print_table
from cli.base.text import time_text
from cli.compact.client import Json, connected
from cli.replica.change import ROOT, link_path

COPYING = "copying"
MEASURED = frozenset({COPYING, "resync"})
"""States in which a partition's lag is known, once the source has said its end."""
LINK_TITLES = ("LINK", "SOURCE", "PARTITIONS", "COPYING", "LAG", "REASON")
TITLES = ("PARTITION", "STATE", "SINCE", "END", "SOURCE END", "LAG", "REASON")


async def show_links(url: str, *, as_json: bool) -> int:
    """Print all links. Returns the exit code."""
    async with connected(url, root=ROOT) as client:
        found = await client.call("GET", "/links")
    if as_json:
        print_json(found)
    elif not found["links"]:
        typer.echo("no links: kompakt replica create")
    else:
        rows = [_link_row(each) for each in found["links"]]
        print_table(LINK_TITLES, rows, texts=("LINK", "SOURCE", "REASON"))
    return 0


async def show_link(url: str, name: str, *, as_json: bool) -> int:
    """Print the partitions of a link. Returns 1 unless there are some, all are copied, and the groups'
    offsets taken along."""
    async with connected(url, root=ROOT) as client:
        link = await client.call("GET", link_path(name))
    if as_json:
        print_json(link)
    else:
        _print_link(link)
    partitions = link["partitions"]
    is_well = bool(partitions) and all(each["state"] == COPYING for each in partitions)
    groups = link.get("group_offsets") or {"problems": {}}
    acls = link.get("acls_here") or {"problem": ""}
    problems = link["reason"] or link["problems"] or groups["problems"] or acls["problem"]
    return 0 if is_well and not problems else EXIT_FAILED


def _link_row(link: Json) -> tuple[str, ...]:
    states = Counter(each["state"] for each in link["partitions"])
    measured = [each["lag"] for each in link["partitions"] if _is_measured(each)]
    reason = link["reason"] or ("paused" if link.get("paused") else "")
    return (
        link["name"],
        link.get("bootstrap", ""),
        str(len(link["partitions"])),
        str(states[COPYING]),
        str(sum(measured)) if measured else "-",
        reason,
    )


def _print_link(link: Json) -> None:
    rate = link.get("bytes_per_second")
    limit = "" if rate is None else f", at most {count_text(rate, 'byte')} a second"
    typer.echo(f"link {link['name']} to {link.get('bootstrap', '(unknown)')}{limit}")
    if link["reason"]:
        typer.echo(f"the source cannot be followed: {link['reason']}")
    for topic, problem in link["problems"].items():
        typer.echo(f"topic {topic} is not mirrored: {problem}")
    if (groups := link.get("group_offsets")) is not None:
        _print_groups(groups)
    if (acls := link.get("acls_here")) is not None:
        _print_acls(acls)
    if not link["partitions"]:
        typer.echo("no partition is mirrored")
        return
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            each["state"],
            time_text(each["since_ms"]),
            str(each["end"]),
            str(each["source_end"]) if each["source_end"] >= 0 else "-",
            str(each["lag"]) if _is_measured(each) else "-",
            "; ".join(filter(None, (_resync_text(each.get("resync")), each["reason"]))),
        )
        for each in link["partitions"]
    ]
    print_table(TITLES, rows, texts=("PARTITION", "STATE", "SINCE", "REASON"))
    _print_put_aside(link["partitions"])
    typer.echo(_lag_text(link["partitions"]))


def _is_measured(partition: Json) -> bool:
    return partition["state"] in MEASURED and partition["source_end"] >= 0


def _lag_text(partitions: list[Json]) -> str:
    measured = [each["lag"] for each in partitions if _is_measured(each)]
    others = len(partitions) - len(measured)
    texts = []
    if measured:
        texts.append(f"{count_text(sum(measured), 'offset')} behind")
    if others:
        texts.append(f"the lag of {count_text(others, 'partition')} is unknown, see STATE")
    return "; ".join([*texts, "a compacted source has fewer records than offsets"])


def _resync_text(resync: Json | None) -> str:
    if resync is None:
        return ""
    remaining_ms = resync["remaining_ms"]
    left = "" if remaining_ms is None else f", about {duration_text(remaining_ms / 1000)} left"
    return f"new copy: {resync['copied']:,} of {count_text(resync['goal'], 'offset')}{left}"


def _print_put_aside(partitions: list[Json]) -> None:
    for each in partitions:
        for log in each.get("put_aside", ()):
            typer.echo(
                f"{each['topic']}-{each['partition']}: the log before a resync is put aside in"
                f" {log['directory']} ({size_text(log['size_bytes'])}); removing it frees that space"
            )


def _print_groups(groups: Json) -> None:
    offsets = f"committed offsets of {count_text(groups['groups'], 'group')}"
    texts = [offsets, _synced_text(groups)]
    if groups["with_members"]:
        left = count_text(groups["with_members"], "group")
        texts.append(f"{left} left alone because of members here")
    if groups["waiting"]:
        texts.append(f"{count_text(groups['waiting'], 'offset')} waiting for records")
    typer.echo(", ".join(texts))
    for subject, problem in groups["problems"].items():
        typer.echo(f"  {subject}: {problem}")


def _print_acls(acls: Json) -> None:
    created = count_text(acls["acls"], "ACL")
    typer.echo(f"{created} of the source created here, {_synced_text(acls)}")
    if acls["problem"]:
        typer.echo(f"  {acls['problem']}")


def _synced_text(facts: Json) -> str:
    synced_ms = facts["synced_ms"]
    return "not synced yet" if synced_ms is None else f"last synced {time_text(synced_ms)}"

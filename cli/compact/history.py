"""`kompakt compact history`: requests the last cleaning passes and prints them as a table."""

from __future__ import annotations

from typing import Any

import typer

from cleaner.rules.text import duration_text, moment_text
from cli.base.output import print_json, print_table
from cli.compact.client import TARGET, CompactionClient, connected
from cli.compact.output import (
    LEFT_ALIGNED,
    PASS_TITLES,
    Json,
    fence_lines,
    name_of,
    pass_row,
    swept_text,
)

TITLES = ("ended (UTC)", *PASS_TITLES)


async def show_history(url: str, target: str | None, *, limit: int, as_json: bool) -> int:
    """Request the passes over TOPIC, TOPIC-N or everything, and print them."""
    async with connected(url) as client:
        answer = await _ask(client, target, limit)
    if as_json:
        print_json(answer)
    else:
        print_history(answer["passes"], target)
    return 0


async def _ask(client: CompactionClient, target: str | None, limit: int) -> dict[str, Any]:
    """Request the passes over the topic named `target` and, if there are none, over TOPIC-N.

    The topic may be deleted, so only the history can tell which of the two is meant.
    """
    query = {"limit": str(limit)}
    answer = await client.call("GET", "/history", query | ({"topic": target} if target else {}))
    match = TARGET.fullmatch(target or "")
    if match is None or answer["passes"]:
        return answer
    return await client.call("GET", "/history", query | match.groupdict())


def print_history(passes: list[Json], of: str | None) -> None:
    """Print one row per pass, newest first, then the errors of failed and stopped passes."""
    if not passes:
        typer.echo(f"no pass over {of} has ended yet" if of else "no pass has ended yet")
        return
    print_table(TITLES, [_row(each) for each in passes], texts=LEFT_ALIGNED)
    for entry in passes:
        if entry.get("undo"):
            typer.echo(_undo(entry))
        if entry["result"] == "swept":
            typer.echo(f"{_ended(entry)}  {name_of(entry)} swept: {swept_text(entry)}")
        elif entry["result"] != "completed":
            typer.echo(f"{_ended(entry)}  {name_of(entry)} {entry['result']}: {entry['error']}")
        for line in fence_lines(entry):
            typer.echo(f"{_ended(entry)}  {name_of(entry)} {line}")


def _row(entry: Json) -> tuple[str, ...]:
    if entry["result"] == "completed":
        return _ended(entry), *pass_row(entry)
    took = duration_text(entry["seconds"])
    return _ended(entry), name_of(entry), took, "", "", "", entry["result"]


def _ended(entry: Json) -> str:
    return moment_text(entry["ended_ms"]).removesuffix(" UTC")


def _undo(entry: Json) -> str:
    """Returns a line about a pass that can still be undone."""
    undo, number = entry["undo"], entry["undo_number"]
    how = undo["refusal"] or f"kompakt compact undo {name_of(entry)} {number}"
    return (
        f"{_ended(entry)}  pass {number} over {name_of(entry)} is kept until"
        f" {moment_text(undo['until_ms'])}: {how}"
    )

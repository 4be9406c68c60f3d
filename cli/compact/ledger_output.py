"""Prints what ledgers say, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from cleaner.rules.text import count_text, moment_text, size_text
from cli.base.output import print_table

Json = dict[str, Any]

TITLES = (
    "time (UTC)",
    "partition",
    "pass",
    "offsets",
    "before",
    "after",
    "dropped",
    "result",
    "entry",
)
LEFT = frozenset({"time (UTC)", "partition", "pass", "offsets", "result"})


def print_passes(passes: Sequence[Json], of: str | None, offset: int | None) -> None:
    """Print a row for each group of segments that passes replaced, oldest first."""
    if not passes:
        about = "" if of is None else f" over {of}"
        where = "" if offset is None else f" and covered offset {offset}"
        typer.echo(f"the ledger has no pass{about} that changed a log{where}")
        return
    rows = [_row(each, group) for each in passes for group in each["groups"]]
    print_table(TITLES, rows, texts=LEFT)
    for each in passes:
        if each["error"]:
            typer.echo(f"pass {each['pass_id']} {each['result']}: {each['error']}")


OUTCOMES = {"swapped": "", "not_swapped": ", not swapped", "undone": ", undone"}


def _row(each: Json, group: Json) -> tuple[str, ...]:
    ended = each["ended_ms"] if each["ended_ms"] is not None else each["began_ms"]
    result = each["result"]
    result += OUTCOMES.get(group["outcome"], ", swap unknown")
    return (
        moment_text(ended).removesuffix(" UTC"),
        f"{each['topic']}-{each['partition']}",
        each["pass_id"],
        f"[{group['start_offset']}, {group['end_offset']})",
        *(size_text(_bytes(group[side])) for side in ("sources", "outputs")),
        f"{group['dropped']:,}",
        result,
        str(group["entry"]),
    )


def _bytes(segments: Sequence[Json]) -> int:
    return sum(each["bytes"] for each in segments)


def print_heads(answer: Json) -> None:
    """Print the head of each ledger."""
    if not answer["heads"]:
        typer.echo(
            "there is no ledger: no pass has changed a log, or log.cleaner.ledger.enable is off"
        )
    for head in answer["heads"]:
        typer.echo(f"directory   {head['directory']}")
        typer.echo(f"  entry       {head['number']}, {moment_text(head['at_ms'])}")
        typer.echo(f"  hash        {head['hash']}")
        typer.echo(f"  public key  {head['public_key']}")
        typer.echo(f"  signature   {head['signature'] or 'none: the directory has no signing.key'}")


def print_reports(reports: Sequence[Json]) -> None:
    """Print the results of verifications, with everything that is wrong."""
    for report in reports:
        for finding in report["findings"]:
            place = finding["path"]
            if finding["position"] is not None:
                place += f" at byte {finding['position']}"
            typer.echo(f"{finding['severity']}: {place}: {finding['text']}")
        typer.echo(f"{report['path']}: {_verdict(report)}")
        for line in _lines(report):
            typer.echo(f"  {line}")


def _verdict(report: Json) -> str:
    if not report["entries"]:
        return "no ledger"
    entries = f"entries {report['first']} to {report['head']['number']}"
    return f"{entries}: " + ("sound" if report["is_sound"] else "NOT SOUND")


def _lines(report: Json) -> list[str]:
    """Returns what the verification covered."""
    size = size_text(report["recomputed_bytes"])
    groups = count_text(report["groups"], "group of segments", "groups of segments")
    lines = [
        f"{count_text(report['passes'], 'pass', 'passes')}, {groups} certified",
        f"{count_text(report['segments'], 'segment')} on disk that passes wrote:"
        f" {report['recomputed']:,} with the digest of their certificate ({size})",
    ]
    for name, text in (
        ("shortened", "cut by a truncation since, so not compared"),
        ("older", "older than the ledger's first entry, so without a certificate"),
        ("without_ledger", "written while the ledger was off"),
    ):
        if report[name]:
            lines.append(f"{report[name]:,} {text}")
    if report["anchors"]:
        lines.append(f"{count_text(report['anchors'], 'anchor')} found in the chain")
    return lines

"""What a job has done to a table, for people and for programs; without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass

import typer

from cleaner.rules.text import count_text, duration_text, size_text
from cli.base.output import print_json
from pipeline.offsets.cut import Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The table after a run, and the run."""

    table: str
    rows: int
    has_values: bool
    """Whether a row is a value that a key has had, and not a key (`--history`)."""
    files: int
    size: int
    """The bytes of these files."""
    records: int
    """The records that the run has read."""
    micro_batches: int
    seconds: float
    """The duration of the run, without the start of Spark."""
    behind: int | None
    """The offsets between the table's and the ends of the topics' partitions, the markers of
    transactions among them; None: not known."""
    cut: Cut


def show(summary: Summary, *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        print_json(json_of(summary))
        return
    typer.echo(
        f"{count_text(summary.rows, 'value' if summary.has_values else 'key')} in {summary.table}"
    )
    typer.echo(details(summary))


def details(summary: Summary) -> str:
    """Returns the line below the number of rows (pure)."""
    rate = summary.records / summary.seconds if summary.seconds else 0
    read = f"{count_text(summary.records, 'record')} read in {duration_text(summary.seconds)}"
    batches = count_text(summary.micro_batches, "micro-batch", "micro-batches")
    files = f"{count_text(summary.files, 'file')} of {size_text(summary.size)}"
    behind = "" if summary.behind is None else f"; {count_text(summary.behind, 'offset')} behind"
    return f"{read} ({rate:,.0f} records/s, {batches}); {files}{behind}"


def json_of(summary: Summary) -> dict[str, object]:
    return {
        "table": summary.table,
        "values" if summary.has_values else "keys": summary.rows,
        "files": summary.files,
        "bytes": summary.size,
        "records_read": summary.records,
        "micro_batches": summary.micro_batches,
        "seconds": round(summary.seconds, 3),
        "offsets_behind": summary.behind,
        "topics": json.loads(summary.cut.to_json())["topics"],
    }

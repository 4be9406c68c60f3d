"""The report of an audit, as text for people and as JSON for programs. Pure, except printing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from cleaner.rules.text import count_text
from cli.base.output import print_json, print_table
from cli.base.text import bytes_members, bytes_text
from pipeline.audit.audit import Audit, Difference, Kind, PartitionAudit, Table
from pipeline.audit.span import Spans
from storage.formats.compaction_strategy import CompactionStrategy

WORDS = {
    Kind.CHANGED: "another value, time or headers than the original has at this offset",
    Kind.MOVED: "the original has this record at another offset",
    Kind.REORDERED: "moved, and past another one that was moved",
    Kind.FOREIGN: "the original has no such record",
    Kind.LOST: "the key's last value is gone",
    Kind.REVIVED: "a superseded record is the key's last",
    Kind.EARLY: "the key's tombstone went before delete.retention.ms was over",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of an audit over all records."""

    original: str
    cleaned: str
    strategy: CompactionStrategy
    """By which both logs were ranked."""
    spans: Spans
    found: Audit

    @property
    def is_same(self) -> bool:
        return self.found.is_same and not self.spans.faults


def print_outcome(outcome: Report | DigestReport, *, as_json: bool) -> None:
    """Print the report for people, or as JSON."""
    if isinstance(outcome, Report):
        print_report(outcome, as_json=as_json)
    else:
        print_digests(outcome, as_json=as_json)


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the report of an audit over all records."""
    if as_json:
        print_json(report_json(report))
        return
    typer.echo(f"original: {report.original}")
    typer.echo(f"cleaned:  {report.cleaned}")
    if report.strategy.has_versions:
        typer.echo(f"by:       {report.strategy}")
    print_table(
        ("partition", "offsets", "records", "cleaned", "keys with a value", "digest", ""),
        [_partition_row(each) for each in report.found.partitions],
        texts={"offsets", "digest", ""},
    )
    for sentence in report.spans.notes:
        typer.echo(f"note: {sentence}")
    for sentence in report.spans.faults:
        typer.echo(f"WRONG: {sentence}")
    _print_differences(report.found)
    typer.echo(verdict(report))


def _partition_row(each: PartitionAudit) -> tuple[str, ...]:
    return (
        str(each.partition),
        f"[{each.span.start}, {each.span.end})",
        f"{each.original.records:,}",
        f"{each.cleaned.records:,}",
        f"{each.original.keys:,}",
        f"{each.original.digest:032x}",
        _digests_text(each),
    )


def _digests_text(each: PartitionAudit) -> str:
    if each.original.digest == each.cleaned.digest:
        return "same"
    if each.cleaned.goes_on:
        return "superseded later"
    return f"cleaned: {each.cleaned.digest:032x}"


def _print_differences(found: Audit) -> None:
    if not found.differences:
        return
    print_table(
        ("what", "partition", "key", "original", "cleaned"),
        [_difference_row(each) for each in found.differences],
        texts={"what", "key"},
    )
    left = sum(found.counts.values()) - len(found.differences)
    if left:
        typer.echo(f" and {left:,} more (--show)")
    for kind in Kind:
        if kind in found.counts:
            typer.echo(f"{kind.value}: {found.counts[kind]:,}; {WORDS[kind]}")


def _difference_row(each: Difference) -> tuple[str, ...]:
    offsets = (each.original_offset, each.cleaned_offset)
    places = ("-" if offset is None else str(offset) for offset in offsets)
    return (each.kind.value, str(each.partition), bytes_text(each.key), *places)


def verdict(report: Report) -> str:
    """Returns the last line of the report."""
    partitions = count_text(len(report.spans.common), "partition")
    if report.is_same:
        keys = sum(each.original.keys for each in report.found.partitions)
        return f"the same table: {count_text(keys, 'key')} with a value in {partitions}"
    wrong = sum(report.found.counts.values()) + len(report.spans.faults)
    return f"not the same table: {count_text(wrong, 'difference')} in {partitions}"


def report_json(report: Report) -> dict[str, Any]:
    """Returns the report as a JSON value."""
    return {
        "original": report.original,
        "cleaned": report.cleaned,
        "strategy": str(report.strategy),
        "is_same": report.is_same,
        "partitions": [_partition_json(each) for each in report.found.partitions],
        "faults": list(report.spans.faults),
        "notes": list(report.spans.notes),
        "counts": {kind.value: count for kind, count in sorted(report.found.counts.items())},
        "differences": [_difference_json(each) for each in report.found.differences],
    }


def _partition_json(each: PartitionAudit) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "start_offset": each.span.start,
        "end_offset": each.span.end,
        "original": _table_json(each.original),
        "cleaned": _table_json(each.cleaned),
        "cleaned_goes_on": each.cleaned.goes_on,
    }


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "records": table.records,
        "keys": table.keys,
        "digest": f"{table.digest:032x}",
    }


def _difference_json(each: Difference) -> dict[str, Any]:
    return {
        "kind": each.kind.value,
        "partition": each.partition,
        **bytes_members("key", each.key),
        "original_offset": each.original_offset,
        "cleaned_offset": each.cleaned_offset,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRow:
    """One partition, compared by digests alone."""

    partition: int
    start: int
    end: int
    original: Table
    cleaned: Table
    cleaned_to: int
    """The clean offset of the broker's side."""

    @property
    def is_same(self) -> bool:
        mine, other = self.original, self.cleaned
        return (mine.keys, mine.digest) == (other.keys, other.digest)


@dataclass(frozen=True, slots=True)
class DigestReport:
    """The report of an audit that compared only digests."""

    rows: tuple[DigestRow, ...]

    @property
    def is_same(self) -> bool:
        return all(row.is_same for row in self.rows)


def print_digests(report: DigestReport, *, as_json: bool) -> None:
    """Print the report for people, or as JSON."""
    if as_json:
        print_json({"is_same": report.is_same, "partitions": _rows_json(report.rows)})
        return
    print_table(
        ("partition", "offsets", "keys with a value", "original", "cleaned", ""),
        [_digest_row(row) for row in report.rows],
        texts={"offsets", "original", "cleaned", ""},
    )
    for row in report.rows:
        if row.cleaned_to > row.end and not row.is_same:
            typer.echo(
                f"partition {row.partition} is cleaned up to offset {row.cleaned_to}: what later"
                f" records supersede is gone below {row.end}, too"
            )
    if report.is_same:
        typer.echo("the same table")
    else:
        typer.echo("not the same table; name both logs instead of a broker's URL to see the keys")


def _digest_row(row: DigestRow) -> tuple[str, ...]:
    keys = f"{row.original.keys:,}"
    if row.cleaned.keys != row.original.keys:
        keys += f" / {row.cleaned.keys:,}"
    return (
        str(row.partition),
        f"[{row.start}, {row.end})",
        keys,
        f"{row.original.digest:032x}",
        f"{row.cleaned.digest:032x}",
        "same" if row.is_same else "DIFFERENT",
    )


def _rows_json(rows: Sequence[DigestRow]) -> list[dict[str, Any]]:
    return [
        {
            "partition": row.partition,
            "start_offset": row.start,
            "end_offset": row.end,
            "clean_offset": row.cleaned_to,
            "is_same": row.is_same,
            "original": {"keys": row.original.keys, "digest": f"{row.original.digest:032x}"},
            "cleaned": {"keys": row.cleaned.keys, "digest": f"{row.cleaned.digest:032x}"},
        }
        for row in rows
    ]

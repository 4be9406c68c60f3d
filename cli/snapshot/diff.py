"""Reads a topic in two states and prints what has become of its keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import typer

from cleaner.rules.text import count_text
from cli.base.output import tolerated_closed_pipe, write_lines
from cli.base.record_text import cell_text
from cli.base.text import bytes_members
from cli.consume.follow import latest_of
from cli.consume.latest_records import LatestRecord, LatestRecords
from cli.snapshot.difference import Change, Counts, Difference, differences
from server.views.snapshot_topic import snapshot_topic_name

SIGNS = {Change.ADDED: "+", Change.CHANGED: "~", Change.REMOVED: "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Which states of a topic to compare."""

    bootstrap: str
    topic: str
    before: str
    """The id of a snapshot."""
    after: str | None
    """The id of a snapshot; None: the topic as it is now."""
    memory_mib: int
    """For each state; what is more goes to the disk."""
    stall_seconds_max: float


def print_differences(comparison: Comparison, *, is_json: bool, is_summary: bool) -> int:
    """Print the keys that differ, and then how many there are. Returns the exit code.

    Raises:
        CommandFailed: a state cannot be read.
    """
    its = comparison
    name = its.topic if its.after is None else snapshot_topic_name(its.topic, its.after)
    counts = Counts()
    line: Callable[[Difference], bytes] = _json_line if is_json else _line
    with (
        _state(its, snapshot_topic_name(its.topic, its.before)) as before,
        _state(its, name) as after,
        tolerated_closed_pipe(),
    ):
        found = differences(before, after, counts)
        write_lines(map(line, (each for each in found if not is_summary)))
    typer.echo(_totals(its.topic, counts), err=not is_summary)
    return 0


def _state(its: Comparison, name: str) -> AbstractContextManager[LatestRecords]:
    return latest_of(
        its.bootstrap,
        name,
        memory_bytes=its.memory_mib << 20,
        stall_seconds_max=its.stall_seconds_max,
    )


def _line(found: Difference) -> bytes:
    """Returns a line for people: what has become of the key, where, and its values."""
    values = [cell_text(each.value) for each in (found.before, found.after) if each is not None]
    key = f"{found.partition}  {cell_text(found.key)}"
    return f"{SIGNS[found.change]} {key}  {' -> '.join(values)}".encode()


def _json_line(found: Difference) -> bytes:
    row = {
        "change": found.change.value,
        "partition": found.partition,
        **bytes_members("key", found.key),
        "before": _members(found.before),
        "after": _members(found.after),
    }
    return json.dumps(row).encode()


def _members(record: LatestRecord | None) -> dict[str, object] | None:
    if record is None:
        return None
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        **bytes_members("value", record.value),
        "headers": [
            {"key": name, **bytes_members("value", value)} for name, value in record.headers
        ],
    }


def _totals(topic: str, counts: Counts) -> str:
    return (
        f"{topic}: {counts.added:,} added, {counts.changed:,} changed, {counts.removed:,} removed;"
        f" {count_text(counts.same, 'key')} as before"
    )

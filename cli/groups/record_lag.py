"""Asks the broker's HTTP listener for the lag of a group in records, for `kompakt groups describe`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from cleaner.rules.text import count_text
from cli.base.command_end import CommandFailed
from cli.base.output import count_cell
from cli.compact.client import connected, other_cluster_text
from cli.groups.describe import Part

SECONDS_MAX = 60.0
"""How long the command waits for it; the broker may have to read segments from a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLag:
    """The records of a partition, and those that a group has still to read."""

    records: int
    lag: int
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLag:
    """The lag of a group in records."""

    parts: dict[Part, PartLag] = field(default_factory=dict)
    """Without the partitions that were not counted."""
    is_exact: bool = True
    """Whether all partitions were counted, and exactly."""
    error: str | None = None
    """Why nothing is known."""

    @property
    def records(self) -> int:
        """The records of all counted partitions."""
        return sum(each.records for each in self.parts.values())

    @property
    def lag(self) -> int:
        """Those of them that are still to be read."""
        return sum(each.lag for each in self.parts.values())


async def record_lag_of(url: str, group: str, cluster_id: str | None) -> RecordLag:
    """Returns the lag of a group as the broker counts it.

    Args:
        cluster_id: of the cluster that the command is about.
    """
    try:
        async with connected(url, root="", seconds_max=SECONDS_MAX) as client:
            answer = await client.call("GET", f"/v1/groups/{quote(group, safe='')}/lag")
    except CommandFailed as error:
        return RecordLag(error=f"not known: {error}")
    if answer["cluster_id"] != cluster_id:
        return RecordLag(error=f"not known: {other_cluster_text(url)}")
    return RecordLag(
        parts={
            (row["topic"], row["partition"]): _part_lag(row)
            for row in answer["partitions"]
            if row["error"] is None
        },
        is_exact=answer["is_exact"],
    )


def _part_lag(row: dict[str, Any]) -> PartLag:
    return PartLag(records=row["records"], lag=row["record_lag"], is_exact=row["is_exact"])


def progress_text(lag: RecordLag, *, others: int) -> str:
    """Returns the line about a group's progress; it says 100 % only if every record has been read. Pure.

    Args:
        others: how many partitions that the group reads are not in the lag.
    """
    percent = 100 * (lag.records - lag.lag) // lag.records if lag.lag else 100
    left = count_cell(lag.lag, is_exact=lag.is_exact)
    text = f"record lag {left} of {count_text(lag.records, 'record')}: {percent} % read"
    if others:
        text += f", without {count_text(others, 'partition')} whose position is not known"
    return text

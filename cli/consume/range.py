"""Chooses the offsets to read of each partition of a topic. `choose_range` is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cli.base.broker_client import BrokerClient
from cli.base.command_end import EXIT_FAILED, EXIT_USAGE, CommandFailed
from cli.base.topic_facts import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    OffsetFound,
    describe,
    error_name,
    offsets_at,
    parts_of,
)

Begin: TypeAlias = int | Literal["beginning", "end"]
"""A negative number -N means N offsets before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The part of a topic that the user wants to read."""

    partitions: Sequence[int]
    """Empty: all of them."""
    begin: Begin
    since_ms: int | None
    """Instead of `begin`: start at the first record at or after this time."""
    until_ms: int | None
    """Stop before the first record at or after this time. None: stop at the current end."""
    is_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The offsets [begin, end) of a partition."""

    begin: int
    end: int


async def ranges_of(client: BrokerClient, topic: str, bounds: Bounds) -> dict[int, Range]:
    """Returns the range to read of each partition.

    Raises:
        CommandFailed: the topic or a partition does not exist, or a partition is offline.
    """
    numbers = parts_of(await describe(client, [topic]))[topic]
    missing = sorted(set(bounds.partitions) - set(numbers))
    if missing:
        raise CommandFailed(
            EXIT_FAILED, f"{topic} has no partition {missing[0]}: it has {len(numbers)}"
        )
    parts = {topic: sorted(bounds.partitions) or numbers}
    isolation = READ_COMMITTED if bounds.is_committed else READ_UNCOMMITTED
    starts = _offsets(await offsets_at(client, parts, EARLIEST, isolation))
    ends = _offsets(await offsets_at(client, parts, LATEST, isolation))
    since, until = [
        {} if moment is None else await offsets_at(client, parts, moment, isolation)
        for moment in (bounds.since_ms, bounds.until_ms)
    ]
    return {
        number: choose_range(
            start=starts[number],
            end=ends[number],
            begin=bounds.begin,
            since=None if bounds.since_ms is None else since[topic, number].offset,
            until=None if bounds.until_ms is None else until[topic, number].offset,
        )
        for number in parts[topic]
    }


def choose_range(
    *, start: int, end: int, begin: Begin, since: int | None, until: int | None
) -> Range:
    """Returns the offsets to read of a partition that holds [start, end).

    `since` and `until` are the offsets that ListOffsets returned for a time: -1 if no record is that
    late.
    """
    if since is not None:
        first = end if since < 0 else since
    elif isinstance(begin, int):
        first = begin if begin >= 0 else end + begin
    else:
        first = start if begin == "beginning" else end
    first = min(max(first, start), end)
    last = end if until is None or until < 0 else min(until, end)
    return Range(begin=first, end=max(first, last))


def parse_begin(text: str) -> Begin:
    """Parse `beginning`, `end`, an offset, or -N. Raises CommandFailed."""
    if text == "beginning":
        return "beginning"
    if text == "end":
        return "end"
    try:
        return int(text)
    except ValueError:
        raise CommandFailed(
            EXIT_USAGE,
            f"--offset {text}: write beginning, end, an offset, or -N for the last N of each partition",
        ) from None


def _offsets(found: Mapping[tuple[str, int], OffsetFound]) -> dict[int, int]:
    for (topic, number), each in found.items():
        if not each.is_known:
            raise CommandFailed(
                EXIT_FAILED, f"{topic}-{number} cannot be read: {error_name(each.error)}"
            )
    return {number: each.offset for (_, number), each in found.items()}

"""What has become of the keys of a topic between two of its states. Pure.

Both states are read in the order of partition and key, so that neither has to be in memory.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from cli.consume.latest_records import LatestRecord


class Change(enum.Enum):
    """What has become of a key."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key that has another value, or none, in one of the states."""

    change: Change
    partition: int
    key: bytes
    before: LatestRecord | None
    after: LatestRecord | None


@dataclass(slots=True)
class Counts:
    """How many keys there are of each kind."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0


def differences(
    before: Iterable[LatestRecord], after: Iterable[LatestRecord], counts: Counts
) -> Iterator[Difference]:
    """Yields the keys whose value or headers differ, ordered by partition and key.

    A record that was written again with the same value and headers is no difference.

    Args:
        before, after: the last records of the keys that have a value, in that order.
        counts: counts all keys.
    """
    merged = heapq.merge(
        _named(before, is_after=False), _named(after, is_after=True), key=itemgetter(0)
    )
    for (partition, key), pair in groupby(merged, key=lambda each: each[0][:2]):
        records = {name[2]: record for name, record in pair}
        found = _difference(partition, key, records.get(False), records.get(True))
        _count(found, counts)
        if found is not None:
            yield found


def _named(
    records: Iterable[LatestRecord], *, is_after: bool
) -> Iterator[tuple[tuple[int, bytes, bool], LatestRecord]]:
    for each in records:
        yield (each.partition, each.key, is_after), each


def _difference(
    partition: int, key: bytes, before: LatestRecord | None, after: LatestRecord | None
) -> Difference | None:
    change = _change(before, after)
    if change is None:
        return None
    return Difference(change=change, partition=partition, key=key, before=before, after=after)


def _change(before: LatestRecord | None, after: LatestRecord | None) -> Change | None:
    if before is None:
        return Change.ADDED
    if after is None:
        return Change.REMOVED
    is_same = (before.value, before.headers) == (after.value, after.headers)
    return None if is_same else Change.CHANGED


def _count(found: Difference | None, counts: Counts) -> None:
    match None if found is None else found.change:
        case Change.ADDED:
            counts.added += 1
        case Change.CHANGED:
            counts.changed += 1
        case Change.REMOVED:
            counts.removed += 1
        case None:
            counts.same += 1

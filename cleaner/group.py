"""Which segments a pass rewrites, and with which neighbours they become one. Pure.

A segment in which something changes is rewritten; one in which nothing changes is not touched, unless
it is small beside its neighbours: segments that lie side by side are merged where the merged one is
at least half as large again as any of them that would not have been rewritten for its own sake. So a
byte is merged O(log n) times between two rewrites that it needs, as in a size-tiered LSM tree, and a
log of small segments comes down to a few large ones.

Sizes are those that will be left. A group stays within `segment.bytes` (its output goes on in another
segment where more was left than expected), its index within `segment.index.bytes`, and its offsets
within 2^31 - 1 of its base, because an index entry holds an int32. A segment that is rewritten alone may
have any size.

Source: Apache Kafka, Cleaner.java `groupSegmentsBySize`; KAFKA-4451, KAFKA-6264. Kafka rewrites all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.key_totals import KeyTotals
from storage.manifest import UNKNOWN, SegmentRow

OFFSET_SPAN_MAX = (1 << 31) - 1
"""The largest last offset of a segment, relative to its base offset."""

INDEX_ENTRY_BYTES_MAX = 12
"""An entry of the time index; the offset index has smaller ones."""

BATCH_BYTES_MIN = 61
"""No batch is smaller, so neither is the distance of two index entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a pass would do to one sealed segment."""

    row: SegmentRow
    is_needed: bool
    """Whether something in it changes."""
    bytes_left: int
    """About what its batches will take afterwards; what they take now if nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is known of a segment before a pass decides whether to rewrite it."""

    totals: KeyTotals
    superseded: int
    """Records that a later one of their key replaces."""
    changed_batches: int
    """Batches of transactions, markers and empty ones that go or get their delete horizon."""


def work_on(row: SegmentRow, found: Findings, *, now_ms: int, keeps_unkeyed: bool) -> Work:
    """Whether a segment needs to be rewritten, and about what will be left of it.

    It does for a superseded record; a tombstone that has no delete horizon yet, a horizon that has
    passed or that the manifest does not know; a record without a key that must go; and for what its
    transactions and empty batches ask for.

    Args:
        now_ms: up to here delete horizons have passed.
    """
    totals = found.totals
    unkeyed = 0 if keeps_unkeyed else totals.unkeyed
    horizon_ms = totals.least_delete_horizon_ms
    is_news = horizon_ms != UNKNOWN and row.least_delete_horizon_ms == UNKNOWN
    is_needed = (
        found.superseded + found.changed_batches + unkeyed + totals.tombstones > 0
        or has_passed(horizon_ms, now_ms)
        or is_news
    )
    records = totals.entries + totals.unkeyed
    dead = found.superseded + unkeyed
    bytes_left = row.size * (records - dead) // records if dead else row.size
    return Work(row=row, is_needed=is_needed, bytes_left=bytes_left)


def has_passed(horizon_ms: int, now_ms: int) -> bool:
    """Whether there is a delete horizon, and it is over."""
    return UNKNOWN < horizon_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBounds:
    """What a group of segments may not exceed, from the topic's configuration."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int

    def index_bytes(self, segment_bytes: int) -> int:
        """The most that an index over so many bytes of batches takes."""
        distance = max(self.index_interval_bytes, BATCH_BYTES_MIN)
        return -(-segment_bytes // distance) * INDEX_ENTRY_BYTES_MAX

    def admit(self, segment: Work, run: Sequence[Work], run_bytes: int) -> bool:
        """Whether `segment` and the run behind it, newest first, may become one."""
        size = segment.bytes_left + run_bytes
        return (
            size <= self.segment_bytes
            and self.index_bytes(size) <= self.segment_index_bytes
            and run[0].row.end_offset - 1 - segment.row.base_offset <= OFFSET_SPAN_MAX
        )


def group_segments(
    segments: Sequence[Work], bounds: GroupBounds
) -> tuple[tuple[SegmentRow, ...], ...]:
    """The groups to rewrite, each into one segment; what is in none is not touched.

    Args:
        segments: neighbours, in offset order.
    """
    groups: list[list[Work]] = []
    run: list[Work] = []
    size = 0
    # From the newest on: there the small ones are, and what merges grows towards the old ones.
    for segment in reversed(segments):
        while run and not bounds.admit(segment, run, size):
            run = _close(run, groups)
            size = _bytes_left(run)
        run.append(segment)
        size += segment.bytes_left
    while run:
        run = _close(run, groups)
    return tuple(
        tuple(work.row for work in reversed(group))
        for group in reversed(groups)
        if len(group) > 1 or group[0].is_needed
    )


def _close(run: list[Work], groups: list[list[Work]]) -> list[Work]:
    """Turn a run that fits into groups; what may still grow towards older segments.

    That is what lies before a segment that is too large to be rewritten for the others' sake.
    Runs and groups are newest first.
    """
    at = _dominant(run)
    if at is None:
        groups.append(run)
        return []
    newer = run[:at]
    while newer:
        newer = _close(newer, groups)
    return run[at + 1 :]


def _dominant(run: Sequence[Work]) -> int | None:
    """The place of the segment that needs no work and has more than twice what all others have."""
    total = _bytes_left(run)
    for at, work in enumerate(run):
        if not work.is_needed and work.bytes_left > 2 * (total - work.bytes_left):
            return at
    return None


def _bytes_left(run: Sequence[Work]) -> int:
    return sum(work.bytes_left for work in run)

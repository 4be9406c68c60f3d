"""Decide which segments a pass rewrites, and which neighbours it merges with them. Pure.

A segment in which something changes is rewritten. A segment in which nothing changes is not touched,
unless it is small beside its neighbours: neighbours are merged if the merged segment is at least one and
a half times as large as each of them that did not need a rewrite itself. So a byte is merged O(log n)
times between two rewrites that it needs, as in a size-tiered LSM tree, and a log of small segments
shrinks to a few large ones.

Sizes are those after the rewrite. A group stays within `segment.bytes` (if more is left than expected,
the output continues in another segment), its index within `segment.index.bytes`, and its offsets within
2^31 - 1 of its base, because an index entry holds an int32. A segment that is rewritten alone may have
any size.

Source: Apache Kafka, Cleaner.java `groupSegmentsBySize`; KAFKA-4451, KAFKA-6264. Kafka rewrites all
segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.records.batch_header import HEADER_BYTES
from protocol.wire.numbers import OFFSET_MAX
from storage.formats.key_totals import KeyTotals
from storage.formats.manifest import UNKNOWN, SegmentRow

OFFSET_SPAN_MAX = (1 << 31) - 1
"""The largest last offset of a segment, relative to its base offset."""

INDEX_ENTRY_BYTES_MAX = 12
"""Size of a time index entry; those of the offset index are smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work that a pass has with one sealed segment."""

    row: SegmentRow
    is_needed: bool
    """Whether a record or a delete horizon in it changes."""
    bytes_left: int
    """Estimated size of its batches afterwards; their current size if nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The facts about a segment by which a pass decides whether to rewrite it."""

    totals: KeyTotals
    superseded: int
    """Records that another record of their key outranks."""
    changed_batches: int
    """Transactional batches, markers and empty batches that are dropped or get a delete horizon."""
    may_stay: bool = False
    """Whether the superseded records are too few to rewrite it for them (`spared.py`)."""


def work_on(
    row: SegmentRow,
    found: Findings,
    *,
    now_ms: int,
    keeps_unkeyed: bool,
    hold_offset: int = OFFSET_MAX,
) -> Work:
    """Returns whether a segment needs a rewrite, and the estimated size afterwards.

    It needs one for a superseded record, unless they may stay, for a tombstone without a delete horizon,
    for a horizon that has passed or that the manifest does not know, for a record without a key that
    must go, and for changes to its transactional and empty batches.

    Args:
        now_ms: delete horizons up to this wall time have passed.
        hold_offset: tombstones and markers at and above it stay, so a horizon there changes nothing.
    """
    totals = found.totals
    unkeyed = 0 if keeps_unkeyed else totals.unkeyed
    horizon_ms = totals.least_delete_horizon_ms
    is_news = horizon_ms != UNKNOWN and row.least_delete_horizon_ms == UNKNOWN
    superseded = 0 if found.may_stay else found.superseded
    is_needed = (
        superseded + found.changed_batches + unkeyed + totals.tombstones > 0
        or (has_passed(horizon_ms, now_ms) and row.base_offset < hold_offset)
        or is_news
    )
    records = totals.entries + totals.unkeyed
    # If it is rewritten all the same, also the records go that might have stayed.
    dead = found.superseded + unkeyed if is_needed else 0
    bytes_left = row.size * (records - dead) // records if dead else row.size
    return Work(row=row, is_needed=is_needed, bytes_left=bytes_left)


def has_passed(horizon_ms: int, now_ms: int) -> bool:
    """Returns whether there is a delete horizon and it has passed."""
    return UNKNOWN < horizon_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBounds:
    """The limits of a group of segments, from the topic's configuration."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int

    def index_bytes(self, segment_bytes: int) -> int:
        """Returns the maximum size of an index over `segment_bytes` bytes of batches."""
        # No batch is smaller than its header, so index entries are at least that far apart.
        distance = max(self.index_interval_bytes, HEADER_BYTES)
        return -(-segment_bytes // distance) * INDEX_ENTRY_BYTES_MAX

    def admit(self, segment: Work, run: Sequence[Work], run_bytes: int) -> bool:
        """Returns whether `segment` may be merged with the run after it (newest first)."""
        size = segment.bytes_left + run_bytes
        is_neighbour = segment.row.end_offset == run[-1].row.base_offset
        return (
            is_neighbour
            and size <= self.segment_bytes
            and self.index_bytes(size) <= self.segment_index_bytes
            and run[0].row.end_offset - 1 - segment.row.base_offset <= OFFSET_SPAN_MAX
        )


def group_segments(
    segments: Sequence[Work], bounds: GroupBounds
) -> tuple[tuple[SegmentRow, ...], ...]:
    """Returns the groups to rewrite, each into one segment; segments in no group are not touched.

    Args:
        segments: in offset order. Where one is left out between two of them, these are not merged.
    """
    groups: list[list[Work]] = []
    run: list[Work] = []
    size = 0
    # Start with the newest: the small segments are there, and merged ones grow towards the old ones.
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
    """Turn a run that fits into groups. Returns the rest of it, which may still grow.

    The rest are the segments older than one that is too large to be rewritten for the sake of the
    others. Runs and groups are newest first.
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
    """Returns the index of a segment that needs no work and is more than twice as large as the rest."""
    total = _bytes_left(run)
    for at, work in enumerate(run):
        if not work.is_needed and work.bytes_left > 2 * (total - work.bytes_left):
            return at
    return None


def _bytes_left(run: Sequence[Work]) -> int:
    return sum(work.bytes_left for work in run)

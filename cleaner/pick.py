"""Which log to clean next, and between which offsets. Pure: the same answer serves `explain`.

    log start        first dirty            first uncleanable      active base      log end
    |---- clean ---------|------- cleanable ------|---- uncleanable ----|---- active ---|

The first dirty offset is where the last pass ended. The first uncleanable one is the least of
    last stable offset      an open transaction may still be aborted
    high watermark          what is not safe yet may be lost, and must not have deleted anything
    active segment's base   it is still written
    lag bound               the first segment whose last append is younger than
                            min.compaction.lag.ms, by the append's wall time: record timestamps
                            are the producers' and may lie in the future

A log is eligible when (in the order in which logs are served)
    1. a dirty segment was begun longer than max.compaction.lag.ms ago;
    2. its dirty ratio exceeds min.cleanable.dirty.ratio, the highest ratio first;
    3. a tombstone's delete horizon has passed, new data or not (KIP-534 needs dirty bytes for it).

Source: Apache Kafka, LogCleanerManager.java `cleanableOffsets`, LogToClean.java; KIP-58, KIP-354.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from storage.config_property import LONG_MAX
from storage.log_config import LogConfig
from storage.manifest import UNKNOWN, SegmentRow


class LogState(Protocol):
    """What picking reads of a log; `storage`'s `CleaningView` is one."""

    @property
    def sealed_rows(self) -> tuple[SegmentRow, ...]:
        """All segments but the active one, in offset order."""

    @property
    def clean_offset(self) -> int: ...
    @property
    def active_base_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class Reason(enum.Enum):
    """Why a log is cleaned now; the order is the order in which logs are served."""

    REQUESTED = 0
    """Somebody asked for it by name."""
    DEADLINE = 1
    """A record has waited max.compaction.lag.ms."""
    DIRTY = 2
    """The dirty ratio is above min.cleanable.dirty.ratio."""
    TOMBSTONES_DUE = 3
    """A delete horizon has passed."""


class Blocker(enum.Enum):
    """Why a log, or the rest of it, cannot be cleaned now; values are sentences for people."""

    NOT_COMPACTED = "cleanup.policy does not hold compact"
    NOTHING_DIRTY = "every record was cleaned"
    ACTIVE_SEGMENT = "what is dirty lies in the active segment, which has not rolled"
    HIGH_WATERMARK = "what is dirty lies at or past the high watermark"
    LAST_STABLE_OFFSET = "what is dirty may belong to a transaction that is still open"
    MIN_LAG = "what is dirty is younger than min.compaction.lag.ms"
    RATIO = "the dirty ratio is not above min.cleanable.dirty.ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The section a pass may clean: [first_dirty_offset, first_uncleanable_offset)."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    limited_by: Blocker
    """What keeps the first uncleanable offset where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What a completed pass had to leave; without it a held tombstone would be due for ever.

    The last record below a pass's upper bound stays even if it is a tombstone whose horizon has
    passed. So after a pass, what was due by its clock is due again only once its bound has moved.
    """

    first_uncleanable_offset: int
    now_ms: int
    """The pass's clock: horizons up to it were acted on as far as they could be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Where one log stands: eligible for a `reason`, or held by a `blocker`; never both."""

    bounds: Bounds
    clean_bytes: int
    cleanable_bytes: int
    """Of all segments with offsets in the bounds, whole segments counted."""
    deadline_ms: int
    """When max.compaction.lag.ms wants it cleaned, in wall time; LONG_MAX if never."""
    horizon_ms: int
    """The earliest delete horizon that a pass could act on; LONG_MAX if there is none."""
    reason: Reason | None
    blocker: Blocker | None

    @property
    def dirty_ratio(self) -> float:
        """Cleanable bytes as a part of all bytes below the first uncleanable offset."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def urgency(self) -> tuple[int, float, float]:
        """Sorts eligible logs: the smallest is served first."""
        reason = self.reason if self.reason is not None else Reason.TOMBSTONES_DUE
        if reason is Reason.DEADLINE:
            return reason.value, float(self.deadline_ms), -self.dirty_ratio
        return reason.value, -self.dirty_ratio, float(self.horizon_ms)


def assess(
    log: LogState,
    config: LogConfig,
    now_ms: int,
    *,
    remainder: Remainder | None = None,
    horizon_now_ms: int | None = None,
    requested: bool = False,
) -> Assessment:
    """Say whether a log is eligible at `now_ms`, why or why not, and its bounds.

    Args:
        remainder: what the last completed pass over this log in this process left behind.
        horizon_now_ms: the clock for delete horizons, where it differs from `now_ms`.
        requested: somebody asked for this log, so that it need not be dirty; the bounds hold.
    """
    bounds = find_bounds(log, config, now_ms)
    dirty = cleanable_rows(log, bounds)
    horizon_now_ms = now_ms if horizon_now_ms is None else horizon_now_ms
    deadline_ms = _deadline_ms(dirty, config)
    horizon_ms = _horizon_ms(log, bounds, remainder)
    clean_bytes = sum(
        row.size for row in log.sealed_rows if row.end_offset <= bounds.first_dirty_offset
    )
    cleanable_bytes = sum(row.size for row in dirty)
    total = clean_bytes + cleanable_bytes

    reason: Reason | None = None
    blocker: Blocker | None = None
    if not config.is_compacted:
        blocker = Blocker.NOT_COMPACTED
    elif requested:
        reason = Reason.REQUESTED
    elif cleanable_bytes > 0 and deadline_ms <= now_ms:
        reason = Reason.DEADLINE
    elif cleanable_bytes > 0 and cleanable_bytes / total > config.min_cleanable_dirty_ratio:
        reason = Reason.DIRTY
    elif horizon_ms <= horizon_now_ms:
        reason = Reason.TOMBSTONES_DUE
    else:
        blocker = Blocker.RATIO if cleanable_bytes > 0 else bounds.limited_by
    return Assessment(
        bounds=bounds,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        deadline_ms=deadline_ms,
        horizon_ms=horizon_ms,
        reason=reason,
        blocker=blocker,
    )


def most_urgent(assessments: Iterable[Assessment]) -> Assessment | None:
    """The eligible log to clean first: deadlines, then dirt, then tombstones; None if none is."""
    eligible = (assessment for assessment in assessments if assessment.reason is not None)
    return min(eligible, key=lambda assessment: assessment.urgency, default=None)


def find_bounds(log: LogState, config: LogConfig, now_ms: int) -> Bounds:
    """The cleanable section of a log at `now_ms`; empty, never negative, if there is none."""
    first_dirty = max(log.clean_offset, log.log_start_offset)
    if first_dirty > log.log_end_offset:
        # A clean offset beyond the end belongs to records that are gone: all else is unknown.
        first_dirty = log.log_start_offset
    limits = [
        (log.last_stable_offset, Blocker.LAST_STABLE_OFFSET),
        (log.high_watermark, Blocker.HIGH_WATERMARK),
        (log.active_base_offset, Blocker.ACTIVE_SEGMENT),
        (_lag_bound(log.sealed_rows, first_dirty, config, now_ms), Blocker.MIN_LAG),
    ]
    if log.last_stable_offset == log.high_watermark:
        limits.pop(0)
    # Of equal limits the one that stands last above is the one to name, except that
    # an active segment without data limits nothing.
    upper = min(offset for offset, _blocker in limits)
    limited_by = [blocker for offset, blocker in limits if offset == upper][-1]
    if upper >= log.log_end_offset:
        limited_by = Blocker.NOTHING_DIRTY
    return Bounds(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=max(upper, first_dirty),
        limited_by=limited_by,
    )


def cleanable_rows(log: LogState, bounds: Bounds) -> tuple[SegmentRow, ...]:
    """The sealed segments with offsets inside the bounds."""
    if bounds.first_dirty_offset >= bounds.first_uncleanable_offset:
        return ()
    return tuple(
        row
        for row in log.sealed_rows
        if row.end_offset > bounds.first_dirty_offset
        and row.base_offset < bounds.first_uncleanable_offset
    )


def horizon_is_due(row: SegmentRow, horizon_now_ms: int) -> bool:
    """Whether a tombstone or marker of the segment may go by its delete horizon."""
    return UNKNOWN < row.least_delete_horizon_ms <= horizon_now_ms


def _lag_bound(
    rows: tuple[SegmentRow, ...], first_dirty: int, config: LogConfig, now_ms: int
) -> int:
    """The base of the first dirty segment that is too young; LONG_MAX if none is."""
    if config.min_compaction_lag_ms == 0:
        return LONG_MAX
    for row in rows:
        # A manifest rebuilt from the segments knows no append times.
        appended_ms = row.created_ms if row.last_append_ms == UNKNOWN else row.last_append_ms
        is_young = appended_ms > now_ms - config.min_compaction_lag_ms
        if row.end_offset > first_dirty and is_young:
            return row.base_offset
    return LONG_MAX


def _deadline_ms(dirty: tuple[SegmentRow, ...], config: LogConfig) -> int:
    begun = [row.first_append_ms for row in dirty if row.first_append_ms != UNKNOWN]
    return min(min(begun, default=LONG_MAX) + config.max_compaction_lag_ms, LONG_MAX)


def _horizon_ms(log: LogState, bounds: Bounds, remainder: Remainder | None) -> int:
    """The earliest horizon below the upper bound that the last pass did not act on already."""
    acted_on_ms = UNKNOWN
    if remainder and remainder.first_uncleanable_offset == bounds.first_uncleanable_offset:
        acted_on_ms = remainder.now_ms
    horizons = (
        row.least_delete_horizon_ms
        for row in log.sealed_rows
        if row.base_offset < bounds.first_uncleanable_offset
    )
    return min((horizon for horizon in horizons if horizon > acted_on_ms), default=LONG_MAX)

"""Assess a log: may it be cleaned now, between which offsets, and when to look again. Pure.

    log start        first dirty            first uncleanable      active base      log end
    |---- clean ---------|------- cleanable ------|---- uncleanable ----|---- active ---|

The first dirty offset is where the last pass ended. The first uncleanable offset is the least of
    last stable offset      an open transaction may still be aborted
    high watermark          records above it may be lost, so they must not have superseded others
    active segment's base   it is still being written
    lag bound               the first dirty segment whose last append is younger than
                            min.compaction.lag.ms, by the append's wall time: record timestamps
                            are the producers' and may lie in the future
    lag bound in bytes      the first dirty segment with less than min.compaction.lag.bytes behind
                            it, unless max.compaction.lag.ms is over for it

A log is eligible if
    the first append to a dirty segment was longer than max.compaction.lag.ms ago, or that time is over
    for superseded records that passes have left (`spared.py`),
    its dirty ratio exceeds min.cleanable.dirty.ratio, or a fence is gone above which it is dirty,
    older values of its keys have to go, by the clock or because the settings changed
    (`sweeps`; docs/design/history.md), or
    a tombstone's delete horizon has passed, with or without new data (KIP-534 requires dirty bytes);
    segments that reach to or above the log's hold do not count, because a hold moves all the time. Where
    records have versions, a horizon counts once the bounds cover what was appended before it.
Outside of the windows of compaction.window only max.compaction.lag.ms makes it eligible.
`cleaner/rules/urgency.py` decides which eligible log is served first; `cleaner/rules/record_verdict.py`,
which records the pass then drops, and when it sets a delete horizon.

The active segment of an idle log would stay dirty for ever, so it rolls when max.compaction.lag.ms
requires it, or after compaction.idle.roll.ms if the log would then be dirty enough (`roll_ms`). An empty
active segment never rolls, so an idle log stops rolling once it is clean. Where records have versions,
it also rolls for tombstones that wait until its records are compared with them.

Source: Apache Kafka, LogCleanerManager.java `cleanableOffsets`, LogToClean.java; KIP-58 (whose first
draft has the lag in bytes), KIP-354. KAFKA-20664 reports idle topics that Kafka never compacts.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cleaner.rules.fence import Fence, hold_of, standing
from cleaner.rules.hold import NO_HOLD, Hold
from cleaner.rules.spared import NOT_ASKED, SparedUntil, spared_due_ms
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.compaction_history import LAST_VALUE, CompactionHistory
from storage.formats.compaction_window import opens_ms
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN

NOTHING = Offset(0)
"""What a pass must cover if all append times are those of this log."""


class SegmentState(Protocol):
    """The properties of a segment that picking reads; manifest rows and segments have them."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def end_offset(self) -> Offset: ...
    @property
    def size(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def first_append_ms(self) -> int: ...
    @property
    def last_append_ms(self) -> int: ...
    @property
    def least_delete_horizon_ms(self) -> int: ...


class LogState(Protocol):
    """The properties of a log that picking reads; `CleaningView` has them."""

    @property
    def sealed_rows(self) -> Sequence[SegmentState]:
        """All segments except the active one, in offset order."""

    @property
    def active_row(self) -> SegmentState:
        """The active segment as it is now."""

    @property
    def clean_offset(self) -> Offset: ...
    @property
    def has_history(self) -> bool: ...
    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def last_stable_offset(self) -> Offset: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...


class Reason(enum.Enum):
    """Why a log is cleaned now."""

    REQUESTED = 0
    """A client or an operator requested it."""
    DEADLINE = 1
    """A record has been dirty for max.compaction.lag.ms."""
    DIRTY = 2
    """The dirty ratio is above min.cleanable.dirty.ratio."""
    TOMBSTONES_DUE = 3
    """A delete horizon has passed."""
    HISTORY_DUE = 4
    """Older values of keys may have to go: by the clock, or because the settings changed."""
    EXPIRY_DUE = 5
    """Values may have expired: a sweep looks for them, which is no pass (`cleaner/expiry/sweep.py`)."""
    INDEX_AHEAD = 6
    """Its keys are counted while no log is eligible: no pass (`cleaner/passes/index_ahead.py`)."""


class Blocker(enum.Enum):
    """Why a log, or the rest of it, cannot be cleaned now; the values are sentences for people."""

    NOT_COMPACTED = "cleanup.policy does not include compact, or mirror.compaction is off"
    NOTHING_DIRTY = "every record was cleaned"
    ACTIVE_SEGMENT = "the dirty records are in the active segment, which has not rolled"
    HIGH_WATERMARK = "the dirty records are at or above the high watermark"
    LAST_STABLE_OFFSET = "the dirty records may belong to a transaction that is still open"
    MIN_LAG = "the dirty records are younger than min.compaction.lag.ms"
    MIN_LAG_BYTES = "the dirty records are within min.compaction.lag.bytes of the log end"
    RATIO = "the dirty ratio is not above min.cleanable.dirty.ratio"
    WINDOW = "passes run by themselves only in the windows of compaction.window"


WINDOWED = (Reason.DIRTY, Reason.TOMBSTONES_DUE, Reason.HISTORY_DUE)
"""Reasons that wait for a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The section a pass may clean: [first_dirty_offset, first_uncleanable_offset)."""

    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    limited_by: Blocker
    """Which limit sets the first uncleanable offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What a completed pass had to leave, so that the log is not due again at once.

    The last record below a pass's upper bound stays even if it is a tombstone whose horizon has passed.
    So horizons that had passed by the pass's clock are due again only after the bound has moved.
    """

    first_uncleanable_offset: Offset
    now_ms: int
    """The pass's clock: it dropped what it could of horizons up to this time."""
    is_stuck: bool = False
    """Whether the pass ended where it began, before a transaction without a marker below the bound:
    until the bound moves, the next pass would too."""
    is_tail_lost: bool = False
    """Whether the pass has left its last batch dirty, because the last record in it has lost: that goes
    once something follows it."""
    hold_offset: Offset = OFFSET_MAX
    """The hold of the pass: in segments that reach above it, horizons that had passed may be left."""
    fences: Sequence[Fence] = ()
    """The damaged segments that the pass has cleaned around. As long as they are in the log, what lies
    above them is dirty and judged."""
    history: CompactionHistory = LAST_VALUE
    """The rule by which all older values below the clean offset were judged."""
    history_due_ms: int = LONG_MAX
    """When the next of them may have to go by the clock; LONG_MAX: never."""
    spared: SparedUntil = NOT_ASKED
    """When superseded records must go that the pass has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The assessment of one log: eligible for a `reason`, or held by a `blocker`; never both."""

    bounds: Bounds
    clean_bytes: int
    cleanable_bytes: int
    """Total size of all segments with offsets in the bounds."""
    deadline_ms: int
    """Wall time at which the oldest dirty record reaches max.compaction.lag.ms, cleanable or not;
    LONG_MAX: never."""
    horizon_ms: int
    """The earliest delete horizon that a pass could act on; LONG_MAX if there is none."""
    roll_ms: int
    """Wall time at which the active segment must roll so that it can be cleaned; LONG_MAX if never."""
    wake_ms: int
    """The next wall time at which this may change without an append; LONG_MAX if never."""
    reason: Reason | None
    blocker: Blocker | None
    hold: Hold = NO_HOLD
    """Which tombstones and markers a pass must keep even after their delete horizon."""
    must_cover: Offset = NOTHING
    """See `uncovered_since_ms`."""
    history_due_ms: int = LONG_MAX
    """When older values of keys may have to go without new records; 0: at once. LONG_MAX: never."""
    sweeps: bool = False
    """Whether a pass must judge the older values of all keys, and not only of those with new records."""
    spares: bool = False
    """Whether a pass leaves segments of which only a small share is superseded (`spared.py`)."""
    spared_due_ms: int = LONG_MAX
    """When superseded records must go that passes have left; 0: at once. LONG_MAX: never."""
    dirty_due_ms: int = LONG_MAX
    """When the oldest record that a pass may clean reaches max.compaction.lag.ms; LONG_MAX: never."""
    known_fences: Sequence[Fence] = ()
    """The fences that the last pass has found, if they still stand."""

    @property
    def dirty_ratio(self) -> float:
        """Cleanable bytes as a share of all bytes below the first uncleanable offset."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def assess(
    log: LogState,
    config: LogConfig,
    now_ms: int,
    *,
    remainder: Remainder | None = None,
    horizon_now_ms: int | None = None,
    hold: Hold = NO_HOLD,
    requested: bool = False,
    must_cover: Offset = NOTHING,
    is_disk_nearly_full: bool = False,
) -> Assessment:
    """Returns whether a log is eligible at `now_ms`, why or why not, and its bounds.

    Args:
        remainder: what the last completed pass over this log in this process left.
        horizon_now_ms: the clock for delete horizons, if it differs from `now_ms`.
        hold: which tombstones and markers stay.
        requested: the pass was requested, so the log need not be dirty; the bounds still apply.
        must_cover: see `uncovered_since_ms`.
        is_disk_nearly_full: whether passes run outside of the topic's windows, too.
    """
    horizon_now_ms = now_ms if horizon_now_ms is None else horizon_now_ms
    rows = log.sealed_rows
    fences = standing(remainder.fences, rows) if remainder else ()
    is_fence_gone = remainder is not None and len(fences) < len(remainder.fences)
    if is_fence_gone:
        # Nothing is settled, and the next pass finds the other ones again.
        remainder = None
    first_dirty = _first_dirty_offset(log)
    dirty = [row for row in rows if row.end_offset > max(first_dirty, _settled_end(remainder))]
    lag = _lag_bound(dirty, config, now_ms)
    bounds = _bounds(log, first_dirty, [lag[:2], _lag_bytes_bound(log, dirty, config, now_ms)])
    # An open transaction may end the section anywhere, also where it begins.
    end_offset = bounds.first_uncleanable_offset
    cleanable = [row for row in dirty if first_dirty < end_offset > row.base_offset]
    fences_hold = hold_of(hold, fences, has_versions=config.strategy.has_versions)
    horizon_ms = _horizon_ms(rows, bounds, remainder, fences_hold.offset)
    waiting_ms = LONG_MAX
    if config.strategy.has_versions and horizon_ms > uncovered_since_ms(
        log, config, end_offset, must_cover
    ):
        horizon_ms, waiting_ms = LONG_MAX, horizon_ms
    if not requested and end_offset == _settled_end(remainder):
        cleanable = []
    if cleanable and not requested and _is_stuck(remainder, bounds):
        cleanable, bounds = [], _held_by_transaction(bounds)
    clean_bytes = sum(row.size for row in rows[: len(rows) - len(dirty)])
    cleanable_bytes = sum(row.size for row in cleanable)
    roll_ms = _roll_ms(log, config, clean_bytes, sum(row.size for row in dirty))
    if bounds.limited_by is Blocker.ACTIVE_SEGMENT and not config.is_mirror:
        roll_ms = min(roll_ms, _roll_for_tombstones_ms(log, config, waiting_ms))
    deadline_ms = _deadline_ms([*dirty, log.active_row], config)
    history_due_ms = _history_due_ms(log, config, remainder, end_offset)
    has_records_below = end_offset > log.log_start_offset
    is_history_due = history_due_ms <= horizon_now_ms and has_records_below
    left_due_ms = spared_due_ms(
        log.has_history, config, None if remainder is None else remainder.spared
    )
    dirty_due_ms = _deadline_ms(cleanable, config)
    is_late = dirty_due_ms <= now_ms or (left_due_ms <= now_ms and has_records_below)
    verdict: Reason | Blocker
    if not config.is_compacted:
        verdict = Blocker.NOT_COMPACTED
    elif requested:
        verdict = Reason.REQUESTED
    elif is_late:
        verdict = Reason.DEADLINE
    elif _is_dirty(clean_bytes, cleanable_bytes, config) or (is_fence_gone and cleanable):
        verdict = Reason.DIRTY
    elif is_history_due:
        verdict = Reason.HISTORY_DUE
    elif horizon_ms <= horizon_now_ms:
        verdict = Reason.TOMBSTONES_DUE
    else:
        verdict = Blocker.RATIO if cleanable else bounds.limited_by
    opens_at_ms = opens_ms(config.windows, now_ms)
    if verdict in WINDOWED and opens_at_ms < LONG_MAX and not is_disk_nearly_full:
        verdict = Blocker.WINDOW
    by_horizon_clock = min(horizon_ms, history_due_ms)
    by_horizon_clock += now_ms - horizon_now_ms
    moments = (deadline_ms, left_due_ms, by_horizon_clock, roll_ms, lag[2], opens_at_ms)
    return Assessment(
        bounds=bounds,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        deadline_ms=deadline_ms,
        horizon_ms=horizon_ms,
        hold=hold,
        must_cover=must_cover,
        history_due_ms=history_due_ms,
        sweeps=is_history_due or (log.has_history and config.spares_segments and has_records_below),
        spares=config.spares_segments and not is_late,
        spared_due_ms=left_due_ms,
        dirty_due_ms=dirty_due_ms,
        known_fences=fences,
        roll_ms=roll_ms,
        wake_ms=min((moment for moment in moments if moment > now_ms), default=LONG_MAX),
        reason=verdict if isinstance(verdict, Reason) else None,
        blocker=verdict if isinstance(verdict, Blocker) else None,
    )


def _history_due_ms(
    log: LogState, config: LogConfig, remainder: Remainder | None, end_offset: Offset
) -> int:
    """Returns when older values below the clean offset may have to go; 0: at once; LONG_MAX: never.

    A process that has not judged them by the present rule yet does so at once.
    """
    if not log.has_history:
        return LONG_MAX
    if remainder is None or remainder.history != config.history:
        return 0
    if config.history.keeps_more:
        return remainder.history_due_ms
    if config.spares_segments:
        return LONG_MAX
    # The last record below a pass's end stays though it has lost, until something follows it.
    return LONG_MAX if end_offset == _settled_end(remainder) else 0


def _settled_end(remainder: Remainder | None) -> Offset:
    """Returns the end of what counts as clean above the clean offset.

    A pass has left only its last batch there, whose last record has lost. It goes with the next pass;
    none runs for it alone. Or the pass has left the clean offset at a fence.
    """
    if remainder is None or not (remainder.is_tail_lost or remainder.fences):
        return NOTHING
    return remainder.first_uncleanable_offset


def _is_stuck(remainder: Remainder | None, bounds: Bounds) -> bool:
    return (
        remainder is not None
        and remainder.is_stuck
        and remainder.first_uncleanable_offset == bounds.first_uncleanable_offset
    )


def _held_by_transaction(bounds: Bounds) -> Bounds:
    return replace(
        bounds,
        first_uncleanable_offset=bounds.first_dirty_offset,
        limited_by=Blocker.LAST_STABLE_OFFSET,
    )


def _first_dirty_offset(log: LogState) -> Offset:
    """Returns where the last pass ended; a clean offset outside the log is ignored."""
    first_dirty = max(log.clean_offset, log.log_start_offset)
    return first_dirty if first_dirty <= log.log_end_offset else log.log_start_offset


def _bounds(log: LogState, first_dirty: Offset, lag_bounds: list[tuple[Offset, Blocker]]) -> Bounds:
    """Returns the cleanable section of a log; empty, never negative, if there is none."""
    limits: list[tuple[Offset, Blocker]] = [
        (log.last_stable_offset, Blocker.LAST_STABLE_OFFSET),
        (log.high_watermark, Blocker.HIGH_WATERMARK),
        (log.active_row.base_offset, Blocker.ACTIVE_SEGMENT),
        *lag_bounds,
    ]
    if log.last_stable_offset == log.high_watermark:
        limits.pop(0)
    # Of equal limits the one that is listed last above is named, unless they lie at the log's end:
    # then nothing is limited, because nothing is dirty.
    upper = min(offset for offset, _blocker in limits)
    limited_by = [blocker for offset, blocker in limits if offset == upper][-1]
    if upper >= log.log_end_offset:
        limited_by = Blocker.NOTHING_DIRTY
    return Bounds(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=max(upper, first_dirty),
        limited_by=limited_by,
    )


def _lag_bound(
    dirty: Sequence[SegmentState], config: LogConfig, now_ms: int
) -> tuple[Offset, Blocker, int]:
    """Returns the base offset of the first dirty segment that is too young, and until when it is."""
    if config.min_compaction_lag_ms > 0:
        for row in dirty:
            # A manifest that was rebuilt from the segments has no append times.
            appended_ms = row.created_ms if row.last_append_ms == UNKNOWN else row.last_append_ms
            old_enough_ms = appended_ms + config.min_compaction_lag_ms
            if old_enough_ms > now_ms:
                return row.base_offset, Blocker.MIN_LAG, old_enough_ms
    return OFFSET_MAX, Blocker.MIN_LAG, LONG_MAX


def _lag_bytes_bound(
    log: LogState, dirty: Sequence[SegmentState], config: LogConfig, now_ms: int
) -> tuple[Offset, Blocker]:
    """Returns the base offset of the first dirty segment that is partly or wholly near the log end.

    In an idle log these segments would never become old enough, so max.compaction.lag.ms overrides the
    limit.
    """
    bound, behind = OFFSET_MAX, log.active_row.size
    if config.min_compaction_lag_bytes > 0:
        for row in reversed(dirty):
            is_late = _deadline_ms([row], config) <= now_ms
            if behind >= config.min_compaction_lag_bytes or is_late:
                break
            bound, behind = row.base_offset, behind + row.size
    return bound, Blocker.MIN_LAG_BYTES


def _is_dirty(clean_bytes: int, dirty_bytes: int, config: LogConfig) -> bool:
    """Returns whether the dirty ratio is above min.cleanable.dirty.ratio."""
    total = clean_bytes + dirty_bytes
    return dirty_bytes > 0 and dirty_bytes / total > config.min_cleanable_dirty_ratio


def _roll_ms(log: LogState, config: LogConfig, clean_bytes: int, dirty_bytes: int) -> int:
    """Returns when the active segment must roll so that it can be cleaned; LONG_MAX if never.

    An idle segment does not roll before min.compaction.lag.ms allows cleaning it, and not at all if
    min.compaction.lag.bytes would still protect it.
    """
    active = log.active_row
    if active.size == 0 or active.last_append_ms == UNKNOWN or not config.is_compacted:
        return LONG_MAX
    roll_ms = _deadline_ms([active], config)
    idle_ms = config.compaction_idle_roll_ms
    can_be_cleaned = (
        active.base_offset < min(log.last_stable_offset, log.high_watermark)
        and config.min_compaction_lag_bytes == 0
        and _is_dirty(clean_bytes, dirty_bytes + active.size, config)
    )
    if idle_ms >= 0 and can_be_cleaned:
        idle_ms = max(idle_ms, config.min_compaction_lag_ms)
        roll_ms = min(roll_ms, active.last_append_ms + idle_ms)
    return roll_ms


def _roll_for_tombstones_ms(log: LogState, config: LogConfig, horizon_ms: int) -> int:
    """Returns when an idle active segment must roll for tombstones that wait until its records are
    compared with them; LONG_MAX if never.

    Args:
        horizon_ms: the earliest horizon that waits; LONG_MAX if none does.
    """
    active = log.active_row
    is_rollable = (
        config.is_compacted
        and active.size > 0
        and active.last_append_ms != UNKNOWN
        and active.base_offset < min(log.last_stable_offset, log.high_watermark)
        and config.min_compaction_lag_bytes == 0
    )
    if horizon_ms == LONG_MAX or not is_rollable or config.compaction_idle_roll_ms < 0:
        return LONG_MAX
    idle_ms = max(config.compaction_idle_roll_ms, config.min_compaction_lag_ms)
    return max(horizon_ms, active.last_append_ms + idle_ms)


def _deadline_ms(dirty: Sequence[SegmentState], config: LogConfig) -> int:
    """Returns when the oldest of the segments reaches max.compaction.lag.ms; LONG_MAX if never."""
    if config.max_compaction_lag_ms == LONG_MAX:
        return LONG_MAX
    begun = (row.first_append_ms for row in dirty if row.first_append_ms != UNKNOWN)
    return min(min(begun, default=LONG_MAX) + config.max_compaction_lag_ms, LONG_MAX)


def uncovered_since_ms(
    log: LogState, config: LogConfig, end_offset: Offset, must_cover: Offset
) -> int:
    """Returns the time of the first append above `end_offset`: a pass that ends there may drop the
    tombstones whose horizon lies before, where records have versions. LONG_MAX: all of them; 0: none.

    In a mirror, records may follow that the source has appended before a tombstone's horizon.

    Args:
        must_cover: below it, append times may be those of a copy (a promoted mirror), and say nothing.
    """
    if config.is_mirror or end_offset < must_cover:
        return 0
    rows = (*log.sealed_rows, log.active_row)
    row = next((row for row in rows if row.end_offset > end_offset), None)
    if row is None:
        return LONG_MAX
    return max(row.created_ms if row.first_append_ms == UNKNOWN else row.first_append_ms, 0)


def _horizon_ms(
    rows: Sequence[SegmentState], bounds: Bounds, remainder: Remainder | None, hold_offset: int
) -> int:
    """Returns the earliest horizon below the upper bound and the hold that the last pass has not acted
    on yet."""
    acted_on_ms, acted_below = UNKNOWN, 0
    if remainder and remainder.first_uncleanable_offset == bounds.first_uncleanable_offset:
        acted_on_ms, acted_below = remainder.now_ms, remainder.hold_offset
    horizons = (
        row.least_delete_horizon_ms
        for row in rows
        if row.least_delete_horizon_ms > (acted_on_ms if row.end_offset <= acted_below else UNKNOWN)
        and row.base_offset < bounds.first_uncleanable_offset
        and row.end_offset <= hold_offset
    )
    return min(horizons, default=LONG_MAX)

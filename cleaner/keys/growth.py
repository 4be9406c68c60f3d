"""How the keys of a log grow: what can be said from the records that are there. Pure.

A pass removes the older records of a key, so the first record on disk says nothing about the key's age.
But below an offset from which on no pass has removed anything because of later records, each key of the
table still has a record. docs/design/key-analytics.md has the argument, and what it does not cover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleaner.keys.counts import KeyTally
from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN, SegmentRow

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WINDOWS_MS = (HOUR_MS, DAY_MS, 7 * DAY_MS)
"""New keys are counted in so many ms before now."""

FORECAST_DAYS = (7, 30)
RATE_MS_MIN = HOUR_MS
"""A shorter period gives no rates."""

FORECAST_MS_MIN = DAY_MS
"""A shorter period gives no forecast."""

DAMAGED = "a damaged segment may have records of keys that look new"
UNFINISHED = "a pass was interrupted: it has removed records because of later ones"
CUT_OFF = "retention has removed the oldest records, and no pass has ended"
CLEANED_ABOVE = "segments above the clean offset were cleaned before"
NOTHING_NEW = "nothing was appended since the last pass"
NO_TIME = "it is not known when the first record since the last pass was appended"
SHORT = "the records since the last pass are less than a day old"
DELETES = "cleanup.policy also deletes: retention bounds the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthBasis:
    """From where growth is counted."""

    offset: Offset
    """From here on no record was removed, nor one below it because of a record above."""
    since_ms: int
    """When the first record from there on was appended."""
    now_ms: int
    ages: Mapping[int, int]
    """The age of keys whose first record is in a segment, by its base offset; 0 for those not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKeys:
    """The new keys of the last `window_ms` ms: their number is between the two."""

    window_ms: int
    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the keys of a log have changed since a moment."""

    offset: Offset
    since_ms: int
    period_ms: int
    """From that moment to the count."""
    records: int
    """Appended since then; those that count for a key."""
    record_bytes: int
    new_keys: int
    """Keys that were not in the table then."""
    net_live: int
    """Live keys now, less those that were live then."""
    windows: tuple[NewKeys, ...]

    def per_hour(self, count: int) -> float | None:
        """Returns a number of this period as a rate; None if the period is too short."""
        return count * HOUR_MS / self.period_ms if self.period_ms >= RATE_MS_MIN else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySizes:
    """What the keys of a log take, now or later."""

    live_keys: int
    log_bytes: int | None
    """The log after a pass over all of it that has removed the tombstones; None: not known."""
    map_bytes: int
    """An offset map of all keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The sizes in some days, at the rates of the growth."""

    days: int
    sizes: KeySizes


def growth_basis(
    rows: Sequence[SegmentRow],
    *,
    clean_offset: Offset,
    log_start_offset: Offset,
    has_unfinished_pass: bool,
    has_damage: bool,
    now_ms: int,
) -> GrowthBasis | str:
    """Returns from where the growth of a log can be counted, or why it cannot.

    Args:
        rows: the segments with records, the active one included.
        has_unfinished_pass: whether a pass has swapped segments and not moved the clean offset.
    """
    if has_damage:
        return DAMAGED
    if has_unfinished_pass:
        return UNFINISHED
    if clean_offset <= log_start_offset and log_start_offset > 0:
        return CUT_OFF
    above = [row for row in rows if row.base_offset >= clean_offset]
    if any(row.is_cleaned for row in above):
        return CLEANED_ABOVE
    if not above:
        return NOTHING_NEW
    if above[0].first_append_ms == UNKNOWN:
        return NO_TIME
    return GrowthBasis(
        offset=above[0].base_offset,
        since_ms=above[0].first_append_ms,
        now_ms=now_ms,
        ages={row.base_offset: _age_of(row, now_ms) for row in above},
    )


def _age_of(row: SegmentRow, now_ms: int) -> int:
    """Returns the age of a segment's keys: which windows it lies in, and which it reaches into."""
    begins, ends = row.first_append_ms, row.last_append_ms
    lies_in = len(WINDOWS_MS) if begins == UNKNOWN else _least_window(begins, now_ms)
    reaches_into = 0 if ends == UNKNOWN else _least_window(ends, now_ms)
    return 1 + lies_in * (len(WINDOWS_MS) + 1) + reaches_into


def _least_window(moment_ms: int, now_ms: int) -> int:
    """Returns the number of the smallest window that has a moment; the count of windows if none has."""
    return sum(moment_ms < now_ms - window_ms for window_ms in WINDOWS_MS)


def growth_of(basis: GrowthBasis, tally: KeyTally, *, records: int, record_bytes: int) -> Growth:
    """Returns the growth since a basis.

    Args:
        tally: of keys whose ages are those of the basis.
        records, record_bytes: those from the basis on.
    """
    return Growth(
        offset=basis.offset,
        since_ms=basis.since_ms,
        period_ms=max(basis.now_ms - basis.since_ms, 0),
        records=records,
        record_bytes=record_bytes,
        new_keys=sum(tally.by_age[1:]),
        net_live=tally.live - tally.was_live,
        windows=tuple(
            _new_keys(tally, number, window_ms)
            for number, window_ms in enumerate(WINDOWS_MS)
            if basis.since_ms <= basis.now_ms - window_ms
        ),
    )


def _new_keys(tally: KeyTally, number: int, window_ms: int) -> NewKeys:
    steps = len(WINDOWS_MS) + 1
    ages = [(divmod(age - 1, steps), keys) for age, keys in enumerate(tally.by_age) if age > 0]
    return NewKeys(
        window_ms=window_ms,
        at_least=sum(keys for (lies_in, _), keys in ages if lies_in <= number),
        at_most=sum(keys for (_, reaches_into), keys in ages if reaches_into <= number),
    )


def sizes_now(
    tally: KeyTally, *, file_bytes: int, all_bytes: int, has_only_last: bool, key_bytes: float
) -> KeySizes:
    """Returns what the keys take now.

    Args:
        file_bytes, all_bytes: the size of the segments, and of the records in them.
        has_only_last: whether a cleaned log has nothing but last values.
        key_bytes: the memory that an offset map takes for a key.
    """
    is_known = has_only_last and all_bytes > 0
    return KeySizes(
        live_keys=tally.live,
        log_bytes=round(tally.live_bytes * file_bytes / all_bytes) if is_known else None,
        map_bytes=round(tally.keys * key_bytes),
    )


def forecasts(
    now: KeySizes, growth: Growth, *, config: LogConfig, key_bytes: float
) -> tuple[Forecast, ...] | str:
    """Returns the sizes in some days if the log grows on as it did, or why that is not said."""
    if config.is_deleted:
        return DELETES
    if growth.period_ms < FORECAST_MS_MIN:
        return SHORT
    return tuple(_forecast(now, growth, days, key_bytes) for days in FORECAST_DAYS)


def _forecast(now: KeySizes, growth: Growth, days: int, key_bytes: float) -> Forecast:
    more = max(round(growth.net_live * days * DAY_MS / growth.period_ms), -now.live_keys)
    log_bytes = now.log_bytes
    if log_bytes is not None:
        log_bytes = round(log_bytes * (1 + more / now.live_keys)) if now.live_keys else 0
    return Forecast(
        days=days,
        sizes=KeySizes(
            live_keys=now.live_keys + more,
            log_bytes=log_bytes,
            map_bytes=max(round(now.map_bytes + more * key_bytes), 0),
        ),
    )

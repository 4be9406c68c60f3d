"""What is said of the growth of a log's keys, and when nothing is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.keys.counts import AGES, KeyTally
from cleaner.keys.growth import (
    CLEANED_ABOVE,
    CUT_OFF,
    DAMAGED,
    DAY_MS,
    DELETES,
    HOUR_MS,
    NO_TIME,
    NOTHING_NEW,
    SHORT,
    UNFINISHED,
    GrowthBasis,
    KeySizes,
    NewKeys,
    forecasts,
    growth_basis,
    growth_of,
    sizes_now,
)
from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.manifest import FLAG_CLEANED, UNKNOWN, SegmentRow

NOW_MS = 1_000 * DAY_MS
COMPACTED = LogConfig(cleanup_policy=("compact",))


def row(
    base: int,
    *,
    first_ago_ms: int = 0,
    last_ago_ms: int = 0,
    is_cleaned: bool = False,
    is_known: bool = True,
) -> SegmentRow:
    return SegmentRow(
        base_offset=Offset(base),
        file_version=1,
        flags=FLAG_CLEANED if is_cleaned else 0,
        end_offset=Offset(base + 10),
        size=100,
        first_append_ms=NOW_MS - first_ago_ms if is_known else UNKNOWN,
        last_append_ms=NOW_MS - last_ago_ms if is_known else UNKNOWN,
    )


CLEAN = row(0, is_cleaned=True)


def basis_of(
    *rows: SegmentRow,
    clean_offset: int = 10,
    start: int = 0,
    unfinished: bool = False,
    damage: bool = False,
) -> GrowthBasis | str:
    return growth_basis(
        rows,
        clean_offset=Offset(clean_offset),
        log_start_offset=Offset(start),
        has_unfinished_pass=unfinished,
        has_damage=damage,
        now_ms=NOW_MS,
    )


def tally_of(ages: dict[int, int], *, live: int = 0, was_live: int = 0) -> KeyTally:
    by_age = tuple(ages.get(age, 0) for age in range(AGES))
    return KeyTally(keys=sum(by_age), live=live, was_live=was_live, by_age=by_age)


def test_growth_begins_at_the_first_segment_above_the_clean_offset() -> None:
    basis = basis_of(CLEAN, row(10, first_ago_ms=5000), row(20), clean_offset=10)

    assert isinstance(basis, GrowthBasis)
    assert (basis.offset, basis.since_ms) == (10, NOW_MS - 5000)
    assert basis.ages.keys() == {10, 20}


def test_a_segment_that_a_pass_has_ended_in_is_not_new() -> None:
    basis = basis_of(CLEAN, row(10), row(20), clean_offset=15)

    assert isinstance(basis, GrowthBasis)
    assert basis.offset == 20


def test_a_log_that_was_never_cleaned_grows_from_its_beginning() -> None:
    basis = basis_of(row(0), row(10), clean_offset=0)

    assert isinstance(basis, GrowthBasis)
    assert basis.offset == 0


@pytest.mark.parametrize(
    ("basis", "reason"),
    [
        (basis_of(CLEAN, row(10), damage=True), DAMAGED),
        (basis_of(CLEAN, row(10), unfinished=True), UNFINISHED),
        (basis_of(row(5), row(10), clean_offset=5, start=5), CUT_OFF),
        (basis_of(CLEAN, row(10), row(20, is_cleaned=True)), CLEANED_ABOVE),
        (basis_of(CLEAN), NOTHING_NEW),
        (basis_of(), NOTHING_NEW),
        (basis_of(CLEAN, row(10, is_known=False)), NO_TIME),
    ],
)
def test_where_there_is_no_basis_nothing_is_said(basis: GrowthBasis | str, reason: str) -> None:
    assert basis == reason


def test_new_keys_of_a_window_lie_between_the_segments_in_it_and_those_that_reach_into_it() -> None:
    basis = basis_of(
        CLEAN,
        row(10, first_ago_ms=2 * DAY_MS, last_ago_ms=20 * HOUR_MS),
        row(20, first_ago_ms=20 * HOUR_MS, last_ago_ms=HOUR_MS // 2),
        row(30, first_ago_ms=HOUR_MS // 2, last_ago_ms=0),
    )
    assert isinstance(basis, GrowthBasis)
    tally = tally_of({0: 1000, basis.ages[10]: 100, basis.ages[20]: 10, basis.ages[30]: 1})

    growth = growth_of(basis, tally, records=500, record_bytes=5000)

    assert growth.new_keys == 111
    assert growth.windows == (
        NewKeys(window_ms=HOUR_MS, at_least=1, at_most=11),
        NewKeys(window_ms=DAY_MS, at_least=11, at_most=111),
    ), "a week ago the segments of that time had not been appended, or were cleaned since"


def test_segments_whose_times_are_not_known_may_be_of_any_time() -> None:
    basis = basis_of(CLEAN, row(10, first_ago_ms=DAY_MS), row(20, is_known=False))
    assert isinstance(basis, GrowthBasis)

    growth = growth_of(basis, tally_of({basis.ages[20]: 7}), records=7, record_bytes=7)

    assert [(each.at_least, each.at_most) for each in growth.windows] == [(0, 7), (0, 7)]


def test_rates_need_an_hour() -> None:
    basis = basis_of(CLEAN, row(10, first_ago_ms=HOUR_MS * 2))
    assert isinstance(basis, GrowthBasis)
    growth = growth_of(basis, tally_of({1: 8}, live=5, was_live=9), records=20, record_bytes=50)

    assert (growth.per_hour(growth.new_keys), growth.per_hour(growth.net_live)) == (4, -2)
    assert replace(growth, period_ms=HOUR_MS - 1).per_hour(8) is None


def test_a_forecast_goes_on_at_the_rate_so_far() -> None:
    basis = basis_of(CLEAN, row(10, first_ago_ms=2 * DAY_MS))
    assert isinstance(basis, GrowthBasis)
    tally = replace(tally_of({0: 90, 1: 20}, live=100, was_live=80), live_bytes=5000)
    now = sizes_now(tally, file_bytes=3000, all_bytes=30_000, has_only_last=True, key_bytes=27.0)
    growth = growth_of(basis, tally, records=1, record_bytes=1)

    found = forecasts(now, growth, config=COMPACTED, key_bytes=27.0)

    assert now == KeySizes(live_keys=100, log_bytes=500, map_bytes=110 * 27)
    assert not isinstance(found, str)
    assert [(each.days, each.sizes.live_keys, each.sizes.log_bytes) for each in found] == [
        (7, 170, 850),
        (30, 400, 2000),
    ]
    assert found[0].sizes.map_bytes == 180 * 27


def test_a_log_that_shrinks_does_not_get_smaller_than_empty() -> None:
    basis = basis_of(CLEAN, row(10, first_ago_ms=DAY_MS))
    assert isinstance(basis, GrowthBasis)
    tally = tally_of({0: 50}, live=10, was_live=50)
    growth = growth_of(basis, tally, records=40, record_bytes=40)
    now = KeySizes(live_keys=10, log_bytes=100, map_bytes=50 * 27)

    found = forecasts(now, growth, config=COMPACTED, key_bytes=27.0)

    assert not isinstance(found, str)
    assert {(each.sizes.live_keys, each.sizes.log_bytes) for each in found} == {(0, 0)}


def test_a_forecast_needs_a_day_and_no_retention() -> None:
    basis = basis_of(CLEAN, row(10, first_ago_ms=DAY_MS - 1))
    assert isinstance(basis, GrowthBasis)
    growth = growth_of(basis, tally_of({1: 1}, live=1), records=1, record_bytes=1)
    now = KeySizes(live_keys=1, log_bytes=None, map_bytes=27)
    both = LogConfig(cleanup_policy=("compact", "delete"))

    assert forecasts(now, growth, config=COMPACTED, key_bytes=27.0) == SHORT
    assert forecasts(now, growth, config=both, key_bytes=27.0) == DELETES
    found = forecasts(now, replace(growth, period_ms=DAY_MS), config=COMPACTED, key_bytes=27.0)
    assert not isinstance(found, str)
    assert [each.sizes.log_bytes for each in found] == [None, None]


def test_the_size_of_a_cleaned_log_is_not_known_where_more_than_last_values_stay() -> None:
    tally = tally_of({0: 5}, live=5)

    for only_last, all_bytes in ((False, 10), (True, 0)):
        sizes = sizes_now(
            tally, file_bytes=10, all_bytes=all_bytes, has_only_last=only_last, key_bytes=27.0
        )
        assert sizes.log_bytes is None

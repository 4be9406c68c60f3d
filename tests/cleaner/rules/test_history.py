"""Which older values of a key stay beside its last one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.rules.history import (
    PastRecord,
    cell_of,
    due_ms_of,
    levels_of,
    next_cell_ms,
    older_values,
    stays_as_history,
)
from storage.formats.compaction_history import (
    LAST_VALUE,
    CompactionHistory,
    ThinningStep,
    parse_thinning,
)
from storage.formats.config_property import LONG_MAX

HOUR, DAY = 3_600_000, 86_400_000
THINNED = CompactionHistory(
    steps=parse_thinning("all for 1h, one per 1h for 1d, one per 1d for 4d")
)
NOW = 20_000 * DAY + 10 * HOUR + 30 * 60_000
"""Half past ten in the morning."""


def kept(
    ages_ms: Sequence[int], history: CompactionHistory, *, deleted: Sequence[int] = ()
) -> list[int]:
    """Returns the numbers of those of a key's records, given by age, that stay besides the last."""
    records = [
        PastRecord(number, NOW - age, number in deleted) for number, age in enumerate(ages_ms)
    ]
    return [each.offset for each in older_values(records, history, NOW)]


def test_without_a_history_no_older_value_stays() -> None:
    assert kept([3, 2, 1], LAST_VALUE) == []


def test_so_many_of_the_last_values_stay() -> None:
    assert kept([5, 4, 3, 2, 1], CompactionHistory(versions=3)) == [2, 3]


def test_a_deletion_counts_as_a_value_and_ends_the_history_before_it() -> None:
    assert kept([5, 4, 3, 2, 1], CompactionHistory(versions=4), deleted=[2]) == [2, 3]
    assert kept([5, 4, 3], CompactionHistory(versions=4), deleted=[2]) == []


def test_values_are_thinned_by_whole_periods_as_they_grow_older() -> None:
    ages = {
        "before all steps, the last of these": 6 * DAY,
        "superseded before all steps": 6 * DAY + 1,
        "three days ago, the last of its day": 3 * DAY,
        "an hour earlier on that day": 3 * DAY + HOUR,
        "yesterday at eight, of a day that is not wholly a day old": DAY + 2 * HOUR,
        "yesterday at nine": DAY + HOUR,
        "today from eight to nine, superseded in this hour": 2 * HOUR + 20_000,
        "today from eight to nine": 2 * HOUR,
        "from nine to ten, of an hour that is not wholly an hour old": HOUR + 20_000,
        "from nine to ten": HOUR,
        "now": 0,
    }
    order = sorted(ages, key=lambda name: -ages[name])
    names = [order[number] for number in kept([ages[each] for each in order], THINNED)]

    assert [each for each in order if each not in names] == [
        "superseded before all steps",
        "an hour earlier on that day",
        "today from eight to nine, superseded in this hour",
        "now",
    ]


def test_what_either_rule_keeps_stays() -> None:
    both = CompactionHistory(versions=2, steps=THINNED.steps)

    assert kept([2 * DAY + 2, 2 * DAY + 1, 2 * DAY], THINNED) == []
    assert kept([2 * DAY + 2, 2 * DAY + 1, 2 * DAY], both) == [1]


def test_a_record_from_the_future_stays_until_its_time_has_come() -> None:
    assert kept([-5 * DAY, -5 * DAY, 0], THINNED) == [0, 1]
    record = PastRecord(0, NOW + 5 * DAY, is_tombstone=False)
    levels = levels_of(THINNED)
    assert cell_of(levels, record.timestamp, NOW) is None
    assert next_cell_ms(levels, record.timestamp, NOW) > NOW + 5 * DAY


@pytest.mark.parametrize("timestamp", [-1, -(2**63), 0])
def test_a_record_without_a_usable_timestamp_is_older_than_all_steps(timestamp: int) -> None:
    levels = levels_of(THINNED)

    assert cell_of(levels, timestamp, NOW) == (len(levels) - 1, 0)
    assert next_cell_ms(levels, timestamp, NOW) == LONG_MAX


def test_with_one_step_alone_values_go_by_sixty_fourths_of_its_age() -> None:
    (rest,) = levels_of(CompactionHistory(steps=parse_thinning("all for 64h")))

    assert rest == (HOUR, 64 * HOUR, True)
    assert levels_of(CompactionHistory(steps=parse_thinning("all for 5s")))[0].period_ms == 1000


@pytest.mark.parametrize(
    "text",
    [
        "all for 1h, one per 1h for 1d, one per 1d for 1y",
        "one per 1m for 1h, one per 1d for 10d",
        "all for 3s, one per 2s for 7s, one per 4s for 9s, one per 1m for 2m",
        "one per 1w for 3w",
    ],
)
def test_a_key_has_no_more_cells_than_are_counted(text: str) -> None:
    history = CompactionHistory(steps=parse_thinning(text))
    levels = levels_of(history)
    finest = min(level.period_ms for level in levels)

    for now_ms in (NOW, NOW + 12_345_678, NOW + 7 * DAY - 1):
        moments = range(now_ms - history.steps[-1].age_ms * 2, now_ms + finest, finest)
        cells = {cell_of(levels, moment, now_ms) for moment in moments} - {None}
        assert len(cells) <= history.cells_max


steps = st.sampled_from(
    [
        (),
        (ThinningStep(0, 30),),
        (ThinningStep(10, 40),),
        (ThinningStep(0, 10), ThinningStep(10, 40), ThinningStep(20, 90)),
    ]
)
histories = st.builds(CompactionHistory, st.integers(1, 4), steps)
records = st.lists(st.tuples(st.integers(-5, 200), st.booleans()), min_size=1, max_size=12).map(
    lambda each: [PastRecord(number, *rest) for number, rest in enumerate(each)]
)


@given(records, histories, st.integers(0, 300))
def test_one_walk_finds_what_the_rule_keeps(
    each: list[PastRecord], history: CompactionHistory, now_ms: int
) -> None:
    *older, _ = each

    assert older_values(each, history, now_ms) == [
        record for record in older if stays_as_history(record, each, history, now_ms)
    ]


@given(records, histories, st.lists(st.integers(0, 300), max_size=5), st.integers(0, 300))
def test_when_passes_have_run_makes_no_difference(
    each: list[PastRecord], history: CompactionHistory, moments: list[int], now_ms: int
) -> None:
    left = each
    for moment in sorted(min(moment, now_ms) for moment in moments):
        left = [*older_values(left, history, moment), left[-1]]

    assert older_values(left, history, now_ms) == older_values(each, history, now_ms)


@given(records, histories, st.integers(0, 300), st.integers(0, 300))
def test_nothing_goes_before_the_moment_that_is_known(
    each: list[PastRecord], history: CompactionHistory, now_ms: int, later_ms: int
) -> None:
    stay = older_values(each, history, now_ms)
    due = due_ms_of(each, history, now_ms)
    if now_ms <= later_ms < due:
        left = [*stay, each[-1]]
        assert older_values(left, history, later_ms) == stay


def test_a_value_goes_when_a_later_one_gets_older_than_all_steps() -> None:
    history = CompactionHistory(steps=(ThinningStep(0, 30_000),))
    records = [PastRecord(0, 0, is_tombstone=False), PastRecord(1, 100_000, is_tombstone=False)]

    assert older_values(records, history, 130_999) == records[:1]
    assert due_ms_of(records, history, 130_999) == 131_000
    assert older_values(records, history, 131_000) == []

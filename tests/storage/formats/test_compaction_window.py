"""The windows in which passes over a topic may run by themselves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.compaction_window import (
    MINUTE_MS,
    WEEK_MINUTES,
    is_open,
    opens_ms,
    parse_windows,
)
from storage.formats.config_property import LONG_MAX, ConfigError
from storage.formats.log_config import LogConfig

NIGHTS = parse_windows("Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00")


def at(text: str) -> int:
    """Returns a moment, in ms, of the week that begins on Monday, 30 November 2026."""
    return int(datetime.fromisoformat(f"2026-{text}+00:00").timestamp() * 1000)


@pytest.mark.parametrize(
    ("moment", "opens"),
    [
        ("11-30T05:59", "11-30T22:00"),
        ("11-30T21:59", "11-30T22:00"),
        ("11-30T22:00", None),
        ("12-01T05:59", None),
        ("12-01T06:00", "12-01T22:00"),
        ("12-05T05:59", None),
        ("12-05T06:00", None),
        ("12-06T23:59", None),
        ("12-07T00:00", "12-07T22:00"),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(
    moment: str, opens: str | None
) -> None:
    assert is_open(NIGHTS, at(moment)) == (opens is None)
    assert opens_ms(NIGHTS, at(moment) + 30_000) == (LONG_MAX if opens is None else at(opens))


def test_without_a_window_passes_always_run() -> None:
    for text in ("", "  ", "00:00-24:00", "Mon-Sun 12:00-11:59, 11:00-12:00"):
        assert is_open(parse_windows(text), at("12-02T11:59"))
        assert opens_ms(parse_windows(text), at("12-02T11:59")) == LONG_MAX


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("Wed 12:00-13:00", {2}),
        ("fri-mon 12:00-13:00", {4, 5, 6, 0}),
        ("Mon-Mon 12:00-13:00", {0}),
        ("12:00-13:00", set(range(7))),
        ("Tue 12:00-12:30, Thu 12:00-13:00", {1, 3}),
    ],
)
def test_days_may_be_one_or_a_range_over_the_end_of_the_week(text: str, days: set[int]) -> None:
    windows = parse_windows(text)

    found = {day for day in range(7) if is_open(windows, at(f"12-{1 + day:02}T12:15"))}
    assert found == {(day - 1) % 7 for day in days}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("at night", "is not a window like"),
        ("22-6", "is not a window like"),
        ("22:00-06:00,", "is not a window like"),
        ("22:60-23:00", "22:60 is not between 00:00 and 24:00"),
        ("22:00-24:01", "24:01 is not between 00:00 and 24:00"),
        ("Abc 22:00-23:00", "'Abc' is none of Mon, Tue"),
        ("12:00-12:00", "is empty; 00:00-24:00 is the whole day"),
        (", ".join(["12:00-13:00"] * 21), "at most 20 windows"),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"for configuration compaction.window: .*{reason}"):
        LogConfig.from_overrides({"compaction.window": text}, LogConfig())


DAYS = st.sampled_from(["", "Mon ", "Sat-Sun ", "Fri-Mon "])
TIMES = st.integers(0, 24 * 60).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
WINDOWS = st.lists(
    st.tuples(DAYS, TIMES, TIMES).filter(lambda each: each[1] != each[2]), max_size=3
).map(lambda found: ", ".join(f"{days}{start}-{end}" for days, start, end in found))


@given(WINDOWS, st.integers(0, 2**41))
def test_the_next_window_is_the_first_minute_that_is_open(text: str, now_ms: int) -> None:
    windows = parse_windows(text)

    opens = opens_ms(windows, now_ms)

    if opens == LONG_MAX:
        assert is_open(windows, now_ms)
    else:
        assert is_open(windows, opens)
        assert not is_open(windows, opens - 1)
        assert 0 < opens - now_ms <= WEEK_MINUTES * MINUTE_MS
        assert datetime.fromtimestamp(opens / 1000, UTC).second == 0

"""When background passes over a topic may run: the value of `compaction.window`, as code uses it.

windows := window{","}
window  := [days " "] time "-" time         UTC; over midnight if the end is not after the start
days    := day ["-" day]                    on which the window begins; every day without it
day     := Mon | Tue | Wed | Thu | Fri | Sat | Sun
time    := HH:MM, from 00:00 to 24:00

22:00-06:00
Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

from storage.formats.config_property import LONG_MAX

MINUTE_MS = 60_000
DAY_MINUTES = 1440
WEEK_MINUTES = 7 * DAY_MINUTES
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONDAY_MS = 4 * DAY_MINUTES * MINUTE_MS
"""The first Monday after the beginning of 1970."""
WINDOWS_MAX = 20

Windows = frozenset[int]
"""The minutes of the week, counted from Monday 00:00 UTC, in which passes may run; empty: all."""

_WINDOW = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)", re.IGNORECASE)


@lru_cache(maxsize=256)  # Each look at a log asks for its windows.
def parse_windows(text: str) -> Windows:
    """Parse the value of `compaction.window`.

    Raises:
        ValueError: it has another form; the message is one sentence.
    """
    parts = [" ".join(part.split()) for part in text.split(",")] if text.strip() else []
    if len(parts) > WINDOWS_MAX:
        raise ValueError(f"must have at most {WINDOWS_MAX} windows")
    return frozenset(chain.from_iterable(map(_minutes_of, parts)))


def _minutes_of(text: str) -> list[int]:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:100]!r} is not a window like '22:00-06:00' or 'Mon-Fri 22:00-06:00', in UTC"
        )
    first, last, *numbers = match.groups()
    start, end = _minute(*numbers[:2]), _minute(*numbers[2:])
    if start == end:
        raise ValueError(f"{text!r} is empty; 00:00-24:00 is the whole day")
    end += DAY_MINUTES * (end < start)
    return [
        (day * DAY_MINUTES + minute) % WEEK_MINUTES
        for day in _days(first, last)
        for minute in range(start, end)
    ]


def _minute(hours: str, minutes: str) -> int:
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > DAY_MINUTES:
        raise ValueError(f"{hours}:{minutes} is not between 00:00 and 24:00")
    return minute


def _days(first: str | None, last: str | None) -> list[int]:
    if first is None:
        return list(range(7))
    number = _day(first)
    count = (_day(last) - number) % 7 + 1 if last else 1
    return [(number + each) % 7 for each in range(count)]


def _day(name: str) -> int:
    if name.lower() not in DAYS:
        raise ValueError(f"{name!r} is none of {', '.join(day.title() for day in DAYS)}")
    return DAYS.index(name.lower())


def is_open(windows: Windows, now_ms: int) -> bool:
    """Returns whether background passes may run at this wall time."""
    return not windows or _minute_of_week(now_ms) in windows


def opens_ms(windows: Windows, now_ms: int) -> int:
    """Returns when the next window begins, from outside of all; LONG_MAX inside of one."""
    if is_open(windows, now_ms):
        return LONG_MAX
    minute = _minute_of_week(now_ms)
    wait = min((each - minute) % WEEK_MINUTES for each in windows)
    return (now_ms // MINUTE_MS + wait) * MINUTE_MS


def _minute_of_week(now_ms: int) -> int:
    return (now_ms - MONDAY_MS) // MINUTE_MS % WEEK_MINUTES

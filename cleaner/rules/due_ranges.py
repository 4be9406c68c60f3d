"""What is known of when the values of a log expire, by ranges of offsets. Pure.

    |--- range ---|--- range ---|-- range --|        unread        |
    log start                               read_end               last stable offset

A sweep reads the ranges in which something is due, and what was not read yet. Passes only remove
records, so what is known of a range stays true when its segments are rewritten. The knowledge is only
in memory: the first sweep after a start reads the whole log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cleaner.rules.expiry import NEVER

RANGE_BYTES = 16 << 20
"""Neighbouring ranges are joined up to this size: one is read as a whole when something in it is due."""

PAUSE_MS_MIN = 60_000
PAUSE_FACTOR = 20
"""Between two sweeps of a log lie a minute and 20 times the duration of the last one: so they take a
twentieth of a thread at most."""


class DueRange(NamedTuple):
    """Offsets that a sweep has read: [start, end)."""

    start: int
    end: int
    least_ms: int
    """When the first value in it expires that had not expired; NEVER if there is none."""
    size: int
    """Bytes that were read for it."""


Ranges = Sequence[DueRange]
"""In the order of their offsets, without gaps."""


def due_ms(ranges: Ranges, *, start: int, end: int) -> int:
    """Returns when values in [start, end) need the next sweep; 0: something is unread; NEVER: never."""
    if start < end and (not ranges or ranges[-1].end < end):
        return 0
    return min((each.least_ms for each in ranges if each.end > start), default=NEVER)


def spans_to_read(
    ranges: Ranges, *, start: int, end: int, now_ms: int
) -> Iterator[tuple[int, int]]:
    """Yields the spans of [start, end) that a sweep has to read, in their order."""
    done = start
    first: int | None = None
    for each in ranges:
        if each.end <= start:
            continue
        is_due = each.least_ms <= now_ms
        if is_due and first is None:
            first = max(each.start, start)
        elif not is_due and first is not None:
            yield first, each.start
            first = None
        done = each.end
    if done < end:
        first = done if first is None else first
        done = end
    if first is not None:
        yield first, min(done, end)


def read_again(ranges: Ranges, read: Ranges, *, start: int) -> tuple[DueRange, ...]:
    """Returns the ranges after a sweep that has read those of `read`; what lies below `start` goes."""
    kept = [each for each in _without(ranges, read) if each.end > start]
    return tuple(_joined(sorted([*kept, *read])))


def due_at_once(ranges: Ranges, offsets: Iterable[int]) -> tuple[DueRange, ...]:
    """Returns the ranges with those due at once that hold one of these offsets."""
    starts, changed = [each.start for each in ranges], list(ranges)
    for offset in offsets:
        place = bisect_right(starts, offset) - 1
        if place >= 0:
            changed[place] = changed[place]._replace(least_ms=0)
    return tuple(changed)


def pause_ms(seconds: float) -> int:
    """Returns how long the next sweep waits after one of this duration."""
    return max(PAUSE_MS_MIN, int(seconds * 1000 * PAUSE_FACTOR))


def _without(ranges: Ranges, read: Ranges) -> Iterator[DueRange]:
    """Yields the parts of the ranges that were not read again."""
    places = iter(read)
    place = next(places, None)
    for each in ranges:
        start = each.start
        while place is not None and place.end <= start:
            place = next(places, None)
        while place is not None and place.start < each.end:
            if start < place.start:
                yield each._replace(start=start, end=place.start)
            start = place.end
            if start >= each.end:
                break
            place = next(places, None)
        if start < each.end:
            yield each._replace(start=start)


def _joined(ranges: Iterable[DueRange]) -> Iterator[DueRange]:
    last: DueRange | None = None
    for each in ranges:
        if last is None:
            last = each
        elif last.size + each.size <= RANGE_BYTES and last.end == each.start:
            least_ms = min(last.least_ms, each.least_ms)
            last = DueRange(last.start, each.end, least_ms, last.size + each.size)
        else:
            yield last
            last = each
    if last is not None:
        yield last

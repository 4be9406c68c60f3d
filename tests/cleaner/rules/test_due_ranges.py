"""Which parts of a log a sweep reads, and when it is due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cleaner.rules.due_ranges import (
    PAUSE_MS_MIN,
    RANGE_BYTES,
    DueRange,
    due_at_once,
    due_ms,
    pause_ms,
    read_again,
    spans_to_read,
)
from cleaner.rules.expiry import NEVER

KNOWN = (DueRange(0, 10, 500, 1), DueRange(10, 20, 900, 1), DueRange(20, 30, 400, 1))


def spans(start: int, end: int, now_ms: int) -> list[tuple[int, int]]:
    return list(spans_to_read(KNOWN, start=start, end=end, now_ms=now_ms))


def test_an_unread_log_is_due_at_once_and_an_empty_one_never() -> None:
    assert due_ms((), start=0, end=5) == 0
    assert due_ms(KNOWN, start=0, end=31) == 0
    assert due_ms((), start=5, end=5) == NEVER


def test_a_log_that_was_read_is_due_when_the_first_value_expires() -> None:
    assert due_ms(KNOWN, start=0, end=30) == 400
    assert due_ms(KNOWN, start=0, end=15) == 400
    assert due_ms(KNOWN, start=30, end=30) == NEVER


def test_only_what_is_due_or_unread_is_read_again() -> None:
    assert spans(0, 30, 300) == []
    assert spans(0, 30, 400) == [(20, 30)]
    assert spans(0, 30, 500) == [(0, 10), (20, 30)]
    assert spans(0, 30, 900) == [(0, 30)]
    assert spans(0, 40, 300) == [(30, 40)]
    assert spans(0, 40, 400) == [(20, 40)]
    assert spans(0, 40, 500) == [(0, 10), (20, 40)]


def test_what_lies_below_the_log_start_is_forgotten() -> None:
    assert spans(5, 30, 500) == [(5, 10), (20, 30)]
    assert spans(40, 50, 500) == [(40, 50)]
    assert read_again(KNOWN, (), start=20) == (KNOWN[2],)


def test_small_neighbours_are_joined_with_the_earlier_moment() -> None:
    assert read_again(KNOWN, (), start=0) == (DueRange(0, 30, 400, 3),)
    large = DueRange(30, 40, 300, RANGE_BYTES)
    assert read_again(KNOWN, (large,), start=0) == (DueRange(0, 30, 400, 3), large)


def test_a_range_that_was_read_again_has_its_new_moment() -> None:
    big = [each._replace(size=RANGE_BYTES) for each in KNOWN]
    again = DueRange(5, 15, 700, RANGE_BYTES)

    assert read_again(big, [again], start=0) == (
        big[0]._replace(end=5), again, big[1]._replace(start=15), big[2],
    )  # fmt: skip


def test_ranges_of_deferred_values_are_due_at_once() -> None:
    due = due_at_once(KNOWN, [12, 19])

    assert [each.least_ms for each in due] == [500, 0, 400]


def test_sweeps_take_a_twentieth_of_the_time_at_most() -> None:
    assert pause_ms(0.0) == PAUSE_MS_MIN
    assert pause_ms(60.0) == 20 * 60_000


@given(
    known=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20)), max_size=6),
    sweeps=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20)), max_size=6
    ),
)
def test_each_offset_keeps_the_moment_that_was_last_found_for_it(
    known: list[tuple[int, int]], sweeps: list[tuple[int, int, int]]
) -> None:
    """Sweeps at rising times find for each offset a later moment; joining may only make it earlier."""
    end, ranges = 0, list[DueRange]()
    moments = dict[int, int]()
    for length, moment in known:
        ranges.append(DueRange(end, end + length, moment, RANGE_BYTES))
        moments |= dict.fromkeys(range(end, end + length), moment)
        end += length
    start, now_ms = 0, 0
    for more, cut, later in sweeps:
        end, start, now_ms = end + more, min(start + cut, end + more), now_ms + later
        read = list(spans_to_read(ranges, start=start, end=end, now_ms=now_ms))
        offsets = [offset for first, last in read for offset in range(first, last)]
        expected = [offset for offset in range(start, end) if moments.get(offset, -1) <= now_ms]
        assert set(expected) <= set(offsets)
        assert offsets == sorted(offsets)
        found = [DueRange(first, last, now_ms + 5, RANGE_BYTES) for first, last in read]
        ranges = list(read_again(ranges, found, start=start))
        moments |= dict.fromkeys(offsets, now_ms + 5)
        covered = [offset for each in ranges for offset in range(each.start, each.end)]
        assert [offset for offset in covered if offset >= start] == list(range(start, end))
        for each in ranges:
            assert all(moments[offset] >= each.least_ms for offset in range(each.start, each.end))

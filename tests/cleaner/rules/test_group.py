"""Groups: their bounds, what is rewritten with what, and how often bytes are merged.

The cases for the three bounds are from Kafka's LogCleanerTest, testSegmentGrouping*.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.rules.group import OFFSET_SPAN_MAX, GroupBounds, Work, group_segments, has_passed
from protocol.wire.numbers import Offset
from storage.formats.manifest import UNKNOWN, SegmentRow

WIDE = GroupBounds(segment_bytes=1 << 30, segment_index_bytes=10 << 20, index_interval_bytes=4096)


def works(*sizes: int, needed: Sequence[int] | None = None, offsets: int = 10) -> list[Work]:
    """Returns neighbours of these sizes; all of them need work, or only those at the given indexes."""
    return [
        Work(
            row=SegmentRow(
                base_offset=Offset(index * offsets),
                end_offset=Offset((index + 1) * offsets),
                file_version=index + 1,
                size=size,
            ),
            is_needed=needed is None or index in needed,
            bytes_left=size,
        )
        for index, size in enumerate(sizes)
    ]


def sizes(groups: tuple[tuple[SegmentRow, ...], ...]) -> list[list[int]]:
    return [[row.size for row in group] for group in groups]


# ---------------------------------------------------------------- bounds


def test_wide_bounds_make_one_group() -> None:
    assert sizes(group_segments(works(10, 20, 30), WIDE)) == [[10, 20, 30]]


def test_no_segments_make_no_group() -> None:
    assert group_segments([], WIDE) == ()


def test_each_segment_above_the_size_is_a_group_of_its_own() -> None:
    bounds = replace(WIDE, segment_bytes=1)

    assert sizes(group_segments(works(10, 20, 30), bounds)) == [[10], [20], [30]]


def test_a_group_fills_up_to_the_segment_size_exactly() -> None:
    bounds = replace(WIDE, segment_bytes=30)

    assert sizes(group_segments(works(2, 29, 1, 20, 10), bounds)) == [[2], [29, 1], [20, 10]]


def test_the_bytes_that_will_be_left_are_those_that_count() -> None:
    bounds = replace(WIDE, segment_bytes=30)
    segments = [replace(work, bytes_left=10) for work in works(100, 200, 300)]

    assert sizes(group_segments(segments, bounds)) == [[100, 200, 300]]


def test_the_index_bound_cuts_a_group() -> None:
    bounds = replace(WIDE, segment_index_bytes=24, index_interval_bytes=4096)

    assert sizes(group_segments(works(4096, 4096, 4096), bounds)) == [[4096], [4096, 4096]]


@pytest.mark.parametrize(
    ("last_offset", "groups_count"),
    [
        pytest.param(OFFSET_SPAN_MAX, 1, id="the_largest_relative_offset"),
        pytest.param(OFFSET_SPAN_MAX + 1, 2, id="one_too_far"),
    ],
)
def test_a_group_never_spans_more_offsets_than_an_index_entry_holds(
    last_offset: int, groups_count: int
) -> None:
    first, second = works(10, 10)
    base = 7
    first = replace(
        first, row=replace(first.row, base_offset=Offset(base), end_offset=Offset(base + 1))
    )
    second = replace(
        second,
        row=replace(
            second.row, base_offset=Offset(base + 1), end_offset=Offset(base + last_offset + 1)
        ),
    )

    assert len(group_segments([first, second], WIDE)) == groups_count


# ---------------------------------------------------------------- what is not touched


def test_a_segment_in_which_nothing_changes_is_not_touched() -> None:
    bounds = replace(WIDE, segment_bytes=30)

    assert sizes(group_segments(works(20, 21, 22, needed=[1]), bounds)) == [[21]]


def test_nothing_to_do_is_no_group() -> None:
    assert group_segments(works(200, 40, 10, needed=[]), WIDE) == ()


def test_small_neighbours_are_merged_although_nothing_changes_in_them() -> None:
    assert sizes(group_segments(works(100, 10, 9, 8, needed=[]), WIDE)) == [[10, 9, 8]]


def test_what_is_small_beside_a_rewritten_neighbour_joins_it() -> None:
    assert sizes(group_segments(works(10, 100, 15, needed=[1]), WIDE)) == [[10, 100, 15]]


def test_what_is_large_beside_a_rewritten_neighbour_does_not_join_it() -> None:
    assert sizes(group_segments(works(1000, 10, 200, needed=[1]), WIDE)) == [[10]]


def test_small_ones_before_a_large_one_merge_beyond_it() -> None:
    bounds = replace(WIDE, segment_bytes=111)

    assert sizes(group_segments(works(4, 5, 100, 3, 3, needed=[]), bounds)) == [[4, 5], [3, 3]]


def test_empty_segments_merge_with_each_other() -> None:
    assert sizes(group_segments(works(5, 0, 0, 5, needed=[]), WIDE)) == [[5, 0, 0, 5]]
    assert sizes(group_segments(works(50, 0, 0, 5, needed=[]), WIDE)) == [[0, 0]]


# ---------------------------------------------------------------- properties

SEGMENTS = st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20)


@given(segments=SEGMENTS, segment_bytes=st.integers(1, 100), index_bytes=st.integers(12, 60))
def test_groups_keep_order_and_bounds_and_every_segment_that_needs_work_is_in_one(
    segments: list[tuple[int, bool]], segment_bytes: int, index_bytes: int
) -> None:
    bounds = GroupBounds(
        segment_bytes=segment_bytes, segment_index_bytes=index_bytes, index_interval_bytes=0
    )
    needed = [index for index, (_size, is_needed) in enumerate(segments) if is_needed]
    given_works = works(*(size for size, _needed in segments), needed=needed)

    groups = group_segments(given_works, bounds)

    grouped = [row for group in groups for row in group]
    assert grouped == sorted(grouped, key=lambda row: row.base_offset)
    assert {work.row for work in given_works if work.is_needed} <= set(grouped)
    for group in groups:
        total = sum(row.size for row in group)
        assert len(group) == 1 or total <= segment_bytes
        assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(group))
        for row in group:
            if row.base_offset // 10 not in needed:
                assert total >= 1.5 * row.size, "rewritten for too little"


@given(segments=SEGMENTS, segment_bytes=st.integers(1, 100))
def test_once_everything_is_done_nothing_is_left_to_do(
    segments: list[tuple[int, bool]], segment_bytes: int
) -> None:
    bounds = replace(WIDE, segment_bytes=segment_bytes)
    needed = [index for index, (_size, is_needed) in enumerate(segments) if is_needed]
    log = works(*(size for size, _needed in segments), needed=needed)

    passes = 0
    while groups := group_segments(log, bounds):
        log = rewritten(log, groups)
        passes += 1

    assert passes <= 3


def rewritten(log: Sequence[Work], groups: Sequence[Sequence[SegmentRow]]) -> list[Work]:
    """Returns the log after its groups were swapped in; no segment needs more work."""
    group_of = {row: group for group in groups for row in group}
    left = []
    for work in log:
        group = group_of.get(work.row, (work.row,))
        if group[0] == work.row:
            size = sum(row.size for row in group)
            row = replace(work.row, size=size, end_offset=group[-1].end_offset)
            left.append(Work(row=row, is_needed=False, bytes_left=size))
    return left


@pytest.mark.parametrize("sizes_of", ["equal", "random", "falling", "growing", "spread"])
def test_a_byte_is_merged_o_log_n_times_over_a_long_history_and_few_segments_are_left(
    sizes_of: str,
) -> None:
    random = Random(sizes_of)
    kinds: dict[str, Callable[[int], int]] = {
        "equal": lambda number: 100,
        "random": lambda number: random.randint(1, 200),
        "falling": lambda number: 3000 - number,
        "growing": lambda number: 1 + number,
        "spread": lambda number: int(random.paretovariate(0.5)) % 5000 + 1,
    }
    size_of = kinds[sizes_of]
    segment_bytes = 50_000
    bounds = replace(WIDE, segment_bytes=segment_bytes)
    log: list[Work] = []
    merges: dict[int, int] = {}
    appended = 0
    for number in range(2000):
        size = size_of(number)
        appended += size
        row = SegmentRow(
            base_offset=Offset(number), end_offset=Offset(number + 1), file_version=1, size=size
        )
        log.append(Work(row=row, is_needed=False, bytes_left=size))
        groups = group_segments(log, bounds)
        for row in (row for group in groups for row in group):
            for offset in range(row.base_offset, row.end_offset):
                merges[offset] = merges.get(offset, 0) + 1
        log = rewritten(log, groups)

    assert max(merges.values()) <= math.log(segment_bytes, 1.5)
    full = appended / segment_bytes
    assert len(log) <= 2 * full + 2 * math.log(segment_bytes, 1.5)


@pytest.mark.parametrize(
    ("horizon_ms", "expected"),
    [
        pytest.param(UNKNOWN, False, id="none"),
        pytest.param(0, True, id="the_first_moment"),
        pytest.param(999, True, id="passed"),
        pytest.param(1000, True, id="now"),
        pytest.param(1001, False, id="in_the_future"),
    ],
)
def test_a_delete_horizon_has_passed_from_its_moment_on(horizon_ms: int, expected: bool) -> None:
    assert has_passed(horizon_ms, 1000) is expected

"""Grouping segments for the recopy: the three bounds, and what they leave in order.

The cases are those of Kafka's LogCleanerTest, testSegmentGrouping*.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.group import OFFSET_SPAN_MAX, GroupBounds, group_segments
from storage.manifest import SegmentRow

WIDE = GroupBounds(segment_bytes=1 << 30, segment_index_bytes=10 << 20, index_interval_bytes=4096)


def rows(*sizes: int, offsets: int = 10) -> list[SegmentRow]:
    return [
        SegmentRow(
            base_offset=index * offsets,
            end_offset=(index + 1) * offsets,
            file_version=index + 1,
            size=size,
        )
        for index, size in enumerate(sizes)
    ]


def sizes(groups: tuple[tuple[SegmentRow, ...], ...]) -> list[list[int]]:
    return [[row.size for row in group] for group in groups]


def test_wide_bounds_make_one_group() -> None:
    assert sizes(group_segments(rows(10, 20, 30), WIDE)) == [[10, 20, 30]]


def test_no_segments_make_no_group() -> None:
    assert group_segments([], WIDE) == ()


def test_each_segment_above_the_size_is_a_group_of_its_own() -> None:
    bounds = replace(WIDE, segment_bytes=1)

    assert sizes(group_segments(rows(10, 20, 30), bounds)) == [[10], [20], [30]]


def test_a_group_fills_up_to_the_segment_size_exactly() -> None:
    bounds = replace(WIDE, segment_bytes=30)

    assert sizes(group_segments(rows(10, 20, 1, 29, 1), bounds)) == [[10, 20], [1, 29], [1]]


def test_the_index_bound_cuts_a_group() -> None:
    bounds = replace(WIDE, segment_index_bytes=24, index_interval_bytes=4096)

    assert sizes(group_segments(rows(4096, 4096, 4096), bounds)) == [[4096, 4096], [4096]]


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
    first, second = rows(10, 10)
    base = 7
    first = replace(first, base_offset=base, end_offset=base + 1)
    second = replace(second, base_offset=base + 1, end_offset=base + last_offset + 1)

    assert len(group_segments([first, second], WIDE)) == groups_count


def test_empty_segments_merge_with_their_neighbours() -> None:
    assert sizes(group_segments(rows(0, 0, 5, 0), WIDE)) == [[0, 0, 5, 0]]


@given(
    segment_sizes=st.lists(st.integers(0, 50), max_size=20),
    segment_bytes=st.integers(1, 100),
    index_bytes=st.integers(12, 60),
)
def test_groups_keep_order_and_bounds_and_do_not_part_what_fits(
    segment_sizes: list[int], segment_bytes: int, index_bytes: int
) -> None:
    bounds = GroupBounds(
        segment_bytes=segment_bytes, segment_index_bytes=index_bytes, index_interval_bytes=0
    )
    given_rows = rows(*segment_sizes)

    groups = group_segments(given_rows, bounds)

    assert [row for group in groups for row in group] == given_rows
    for group in groups:
        assert len(group) == 1 or sum(row.size for row in group) <= segment_bytes
    for group, following in itertools.pairwise(groups):
        assert not bounds.admit(list(group), following[0])

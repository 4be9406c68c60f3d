"""The rule of fences: what damaged segments hold back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.rules.fence import (
    Fence,
    as_known,
    clean_offset_max,
    fence_around,
    hold_of,
    reason_of,
    standing,
)
from cleaner.rules.hold import NO_HOLD, Hold
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import OFFSET_MAX, Offset
from storage.formats.manifest import SegmentRow


def row(base_offset: int, end_offset: int, *, version: int = 1) -> SegmentRow:
    return SegmentRow(
        base_offset=Offset(base_offset),
        end_offset=Offset(end_offset),
        file_version=version,
        size=100,
    )


def fence(base_offset: int, end_offset: int, *, version: int = 1, since_ms: int = 7) -> Fence:
    return fence_around(row(base_offset, end_offset, version=version), CorruptBatch("x"), since_ms)


def test_a_log_without_fences_is_held_by_its_groups_alone() -> None:
    hold = Hold(offset=Offset(5), by="group g")

    assert hold_of(hold, (), has_versions=False) is hold
    assert hold_of(NO_HOLD, (), has_versions=True) is NO_HOLD


def test_tombstones_from_the_first_fence_on_stay() -> None:
    hold = hold_of(NO_HOLD, (fence(10, 20), fence(50, 60)), has_versions=False)

    assert hold == Hold(offset=Offset(10), by="the damaged segment with offsets [10, 20)")


@pytest.mark.parametrize(("held_from", "expected"), [(5, 5), (30, 10)])
def test_the_lower_of_the_holds_counts_and_both_are_named(held_from: int, expected: int) -> None:
    of_group = Hold(offset=Offset(held_from), by="group g")

    hold = hold_of(of_group, (fence(10, 20),), has_versions=False)

    assert hold.offset == expected
    assert hold.by == "the damaged segment with offsets [10, 20), group g"


def test_where_records_have_versions_all_tombstones_stay() -> None:
    assert hold_of(NO_HOLD, (fence(10, 20),), has_versions=True).offset == 0


@pytest.mark.parametrize(
    ("fences", "first_undecided", "expected"),
    [
        ((), OFFSET_MAX, OFFSET_MAX),
        ((fence(10, 20), fence(50, 60)), OFFSET_MAX, 10),
        ((fence(10, 20),), 7, 7),
        ((fence(10, 20),), 30, 10),
    ],
)
def test_the_clean_offset_stays_below_the_first_fence_and_what_it_leaves_undecided(
    fences: tuple[Fence, ...], first_undecided: int, expected: int
) -> None:
    assert clean_offset_max(fences, Offset(first_undecided)) == expected


def test_a_fence_stands_as_long_as_its_segment_is_in_the_log() -> None:
    fences = (fence(0, 10), fence(10, 20), fence(20, 30))

    assert standing(fences, [row(10, 20), row(20, 40), row(40, 50)]) == (fences[1],)
    assert standing((), []) == ()


def test_a_fence_that_is_found_again_is_known_since_it_was_found_first() -> None:
    found = (fence(0, 10, since_ms=9), fence(10, 20, since_ms=9), fence(20, 30, since_ms=9))

    known = as_known(found, (fence(0, 10, since_ms=3), fence(10, 20, version=2, since_ms=3)))

    assert [each.since_ms for each in known] == [3, 9, 9]
    assert known[0] == replace(found[0], since_ms=3)


def test_a_batch_beyond_the_bound_of_inflation_is_named_with_its_remedy() -> None:
    error = DecompressionTooLarge(1024)
    error.add_note("batch at position 61")

    assert reason_of(error).endswith(
        "; batch at position 61; raise log.cleaner.decompressed.batch.bytes.max to clean them"
    )

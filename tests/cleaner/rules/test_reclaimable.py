"""How much a pass would free: what of a count holds, what is due, and the estimate at its edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest

from cleaner.keys.sketch import REGISTERS, STANDARD_ERROR, add_key, new_sketch
from cleaner.rules.fence import Fence
from cleaner.rules.pick import Assessment, Blocker, Bounds
from cleaner.rules.reclaimable import (
    NOT_COUNTED,
    PACKED_BYTES_MAX,
    CountedRows,
    Due,
    KeyCount,
    Reclaimable,
    SectionCount,
    due,
    estimate,
    has_meaning,
    packed,
    total_error,
    unpacked,
    what_holds,
)
from protocol.wire.numbers import Offset
from storage.formats.config_property import LONG_MAX
from storage.formats.key_sidecar import ENTRY
from tests.harness.compacted_log import CONFIG


@dataclass(frozen=True, kw_only=True)
class Row:
    """A segment of ten records."""

    base_offset: Offset
    end_offset: Offset
    size: int = 1000
    file_version: int = 1
    record_count: int = 10
    created_ms: int = 0
    first_append_ms: int = 0
    last_append_ms: int = 0
    least_delete_horizon_ms: int = -1


ROWS = [Row(base_offset=Offset(at), end_offset=Offset(at + 10)) for at in range(0, 40, 10)]
DIRTY_FROM = Offset(20)


def sketch(keys: range) -> bytes:
    found = new_sketch()
    for key in keys:
        add_key(found, Random(key).randbytes(16))
    return packed(found)


def section(rows: list[Row], *, entries: int = 0, keys: range = range(0)) -> SectionCount:
    counted = CountedRows()
    for row in rows:
        counted = counted.plus(row)
    return SectionCount(
        end_offset=rows[-1].end_offset, rows=counted, entries=entries, keys=sketch(keys)
    )


def count_of(clean: SectionCount = NOT_COUNTED, dirty: SectionCount = NOT_COUNTED) -> KeyCount:
    return KeyCount(first_dirty_offset=DIRTY_FROM, clean=clean, dirty=dirty)


COUNT = count_of(section(ROWS[:2]), section(ROWS[2:3]))


def assessed(*, end: int = 40, cleanable_bytes: int = 2000) -> Assessment:
    return Assessment(
        bounds=Bounds(
            first_dirty_offset=DIRTY_FROM,
            first_uncleanable_offset=Offset(end),
            limited_by=Blocker.NOTHING_DIRTY,
        ),
        clean_bytes=2000,
        cleanable_bytes=cleanable_bytes,
        deadline_ms=LONG_MAX,
        horizon_ms=LONG_MAX,
        roll_ms=LONG_MAX,
        wake_ms=LONG_MAX,
        reason=None,
        blocker=Blocker.RATIO,
    )


# --------------------------------------------------------------------------------- what holds


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        pytest.param(ROWS, (True, True), id="the same"),
        pytest.param(ROWS[:3], (True, True), id="an uncounted segment went"),
        pytest.param(ROWS[1:], (False, True), id="retention"),
        pytest.param([replace(ROWS[0], file_version=2), *ROWS[1:]], (False, True), id="a swap"),
        pytest.param(
            [*ROWS[:2], replace(ROWS[2], size=1), ROWS[3]], (True, False), id="another segment"
        ),
    ],
)
def test_a_section_holds_as_long_as_it_consists_of_the_counted_segments(
    rows: list[Row], holds: tuple[bool, bool]
) -> None:
    found = what_holds(COUNT, rows, DIRTY_FROM)

    assert (found.clean == COUNT.clean, found.dirty == COUNT.dirty) == holds
    if holds == (False, True):
        assert found.clean == NOT_COUNTED


def test_nothing_holds_once_the_dirty_section_begins_elsewhere() -> None:
    assert what_holds(COUNT, ROWS, Offset(30)) == KeyCount(first_dirty_offset=Offset(30))


# ------------------------------------------------------------------------------------ what is due


def test_segments_are_due_that_lie_below_the_first_uncleanable_offset() -> None:
    assert due(COUNT, ROWS, assessed()) == Due(clean=False, dirty=True)
    assert due(COUNT, ROWS, assessed(end=39)) == Due(clean=False, dirty=False)
    assert due(count_of(), ROWS, assessed(end=29)).dirty is False


def test_the_clean_section_is_due_once_its_sidecars_are_no_larger_than_the_dirty_segments() -> None:
    sidecars = 20 * ENTRY.size
    for cleanable_bytes, is_due in ((sidecars - 1, False), (sidecars, True)):
        found = due(count_of(), ROWS, assessed(cleanable_bytes=cleanable_bytes))
        assert found == Due(clean=is_due, dirty=True)
    halfway = count_of(section(ROWS[:1]))
    assert due(halfway, ROWS, assessed()).clean
    assert not due(count_of(section(ROWS[:2])), ROWS, assessed()).clean


def test_a_count_has_meaning_where_a_pass_keeps_one_record_of_each_key() -> None:
    fence = Fence(
        base_offset=Offset(0),
        end_offset=Offset(10),
        file_version=1,
        size=1,
        reason="damage",
        since_ms=0,
    )

    assert has_meaning(CONFIG, assessed())
    assert not has_meaning(CONFIG, assessed(cleanable_bytes=0))
    assert not has_meaning(CONFIG, replace(assessed(), known_fences=(fence,)))
    assert not has_meaning(replace(CONFIG, compaction_versions=2), assessed())
    assert not has_meaning(replace(CONFIG, cleanup_policy=("delete",)), assessed())


# ---------------------------------------------------------------------------------- the estimate


def test_nothing_is_known_until_the_clean_section_and_a_dirty_segment_were_counted() -> None:
    whole, part = section(ROWS[:2]), section(ROWS[2:3], entries=1, keys=range(1))

    assert estimate(count_of(whole), ROWS, is_clean_distinct=True) is None
    assert estimate(count_of(dirty=part), ROWS, is_clean_distinct=True) is None
    assert estimate(count_of(section(ROWS[:1]), part), ROWS, is_clean_distinct=True) is None
    assert estimate(count_of(whole, part), ROWS, is_clean_distinct=True) is not None


def test_keys_of_the_clean_section_that_are_written_again_are_superseded_without_error() -> None:
    count = count_of(
        section(ROWS[:2], entries=1000, keys=range(1000)),
        section(ROWS[2:], entries=300, keys=range(100)),
    )

    found = estimate(count, ROWS, is_clean_distinct=True)

    assert found is not None
    assert found.superseded == pytest.approx(300)
    assert found.superseded_error == pytest.approx(0, abs=1e-6)
    assert (found.counted_bytes, found.dirty_bytes, found.entries) == (4000, 2000, 1300)
    assert found.bytes == round(4000 * 300 / 1300)
    assert found.gain == pytest.approx(found.bytes / 2000)


def test_where_the_clean_section_may_have_a_key_twice_the_sketch_alone_counts() -> None:
    count = count_of(
        section(ROWS[:2], entries=2000, keys=range(1000)),
        section(ROWS[2:], entries=300, keys=range(100)),
    )

    found = estimate(count, ROWS, is_clean_distinct=False)

    assert found is not None
    assert found.superseded == pytest.approx(1300, abs=4 * STANDARD_ERROR * 1000)
    assert found.superseded_error == pytest.approx(STANDARD_ERROR * 1000, rel=0.1)


def test_an_estimate_stays_between_nothing_and_all_but_one_record_of_each_clean_key() -> None:
    count = count_of(section(ROWS[:2]), section(ROWS[2:], entries=500, keys=range(500)))
    found = estimate(count, ROWS, is_clean_distinct=True)
    assert found is not None
    assert 0 <= found.superseded <= 499

    empty = estimate(count_of(section(ROWS[:2]), section(ROWS[2:])), ROWS, is_clean_distinct=True)
    assert empty is not None
    assert (empty.superseded, empty.share, empty.bytes, empty.bytes_error) == (0, 0, 0, 0)


def test_a_segment_of_both_sections_counts_once_in_the_bytes() -> None:
    count = KeyCount(
        first_dirty_offset=Offset(25),
        clean=section(ROWS[:3], entries=10, keys=range(10)),
        dirty=section(ROWS[2:], entries=10, keys=range(10)),
    )

    found = estimate(count, ROWS, is_clean_distinct=True)

    assert found is not None
    assert (found.counted_bytes, found.dirty_bytes) == (4000, 2000)


def test_a_pass_frees_all_dirty_bytes_at_most() -> None:
    found = Reclaimable(
        end_offset=Offset(1),
        entries=10,
        superseded=9,
        superseded_error=0,
        counted_bytes=1000,
        dirty_bytes=100,
    )

    assert found.gain == 1.0
    assert replace(found, dirty_bytes=0).gain == 0.0


def test_a_sketch_at_rest_has_a_bound() -> None:
    for data in (bytes(REGISTERS), Random(0).randbytes(REGISTERS)):
        assert unpacked(packed(bytearray(data))) == data
        assert len(packed(bytearray(data))) <= PACKED_BYTES_MAX
    assert unpacked(b"") == new_sketch()


def test_errors_add_up_as_those_of_independent_estimates() -> None:
    assert total_error([3, 4]) == 5
    assert total_error([]) == 0

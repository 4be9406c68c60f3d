"""Entries as columns: the largest place of a key says what the cleaner's marks say."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cleaner.passes.dirty_section import DirtySection
from cleaner.passes.index import IndexedSegment
from cleaner.passes.mark import Marked
from pipeline.source.key_entries import (
    ORDINAL_MASK,
    ORDINAL_SHIFT,
    SEGMENT_SHIFT,
    NumberedSegment,
    key_entries,
)
from tests.harness.random_log import local_marks, random_log


def numbered(
    segments: Sequence[IndexedSegment], section: DirtySection, *, log: int = 0, first: int = 0
) -> list[NumberedSegment]:
    """The segments of a log as a job of several logs numbers them."""
    aborted = section.transactions.aborted if section.transactions else ()
    return [
        NumberedSegment(
            log=log,
            number=number,
            row=segment.row,
            start_offset=section.start_offset,
            end_offset=section.end_offset,
            aborted=aborted,
        )
        for number, segment in enumerate(segments, first)
    ]


def entries_of(
    segments: Sequence[IndexedSegment], numbers: Sequence[NumberedSegment]
) -> list[tuple[int, int, int]]:
    return [
        tuple(row.values())
        for segment, number in zip(segments, numbers, strict=True)
        for batch in key_entries(number, segment.blocks())
        for row in batch.to_pylist()
    ]


def marks_by_the_rule(entries: Sequence[tuple[int, int, int]]) -> set[tuple[int, int]]:
    """Segment and ordinal of each entry below the last of its key, where that is dirty."""
    last: dict[tuple[int, int], int] = {}
    for high, low, place in entries:
        last[high, low] = max(place, last.get((high, low), -1))
    return {
        (place >> SEGMENT_SHIFT, place >> ORDINAL_SHIFT & ORDINAL_MASK)
        for high, low, place in entries
        if place < last[high, low] and last[high, low] & 1
    }


def bits_of(marked: Sequence[Marked], first: int = 0) -> set[tuple[int, int]]:
    return {
        (number, at)
        for number, its in enumerate(marked, first)
        for at in range(8 * len(its.marks))
        if its.marks[at >> 3] >> (at & 7) & 1
    }


@given(
    seed=st.integers(0, 1 << 32),
    batches=st.integers(1, 40),
    keys=st.integers(1, 20),
    clean=st.floats(0, 1),
)
def test_any_log_s_entries_lead_to_the_cleaner_s_marks(
    seed: int, batches: int, keys: int, clean: float
) -> None:
    log = random_log(Random(seed), batches=batches, keys=keys)
    segments, section, marked = local_marks(log, int(clean * log.log.log_end_offset))

    entries = entries_of(segments, numbered(segments, section, first=5))

    assert marks_by_the_rule(entries) == bits_of(marked, first=5)


def test_a_key_that_two_logs_have_is_two_keys() -> None:
    log = random_log(Random(1), batches=5, keys=3, transactions=False)
    segments, section, _ = local_marks(log, 0)

    one = entries_of(segments, numbered(segments, section, log=1))
    two = entries_of(segments, numbered(segments, section, log=2, first=len(segments)))

    assert len({each[:2] for each in one + two}) == 2 * len({each[:2] for each in one})


def test_what_lies_at_the_end_of_the_pass_or_behind_it_is_left_out() -> None:
    log = random_log(Random(2), batches=20, keys=3, transactions=False)
    segments, _, _ = local_marks(log, 0)
    end_offset = log.log.log_end_offset // 2
    numbers = [
        NumberedSegment(log=0, number=number, row=each.row, start_offset=0, end_offset=end_offset)
        for number, each in enumerate(segments)
    ]

    places = [place for _, _, place in entries_of(segments, numbers)]

    assert len(places) == end_offset, "every offset is an entry"

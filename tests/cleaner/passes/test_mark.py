"""Marks: with a map of any size, exactly the superseded records are marked."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.kernel.kernel import OffsetMap
from cleaner.passes.dirty_section import dirty_section
from cleaner.passes.index import IndexedSegment, SegmentIndex
from cleaner.passes.key_parts import KeyParts, Part
from cleaner.passes.mark import Marked, mark_window
from cleaner.passes.memory import marks_bytes, windows
from cleaner.passes.verify_pass import PassVerifier
from protocol.wire.numbers import Offset
from tests.harness.compacted_log import HASH_KEY, SETTINGS, CompactedLog, meter_of


def log_of(keys: Sequence[int]) -> CompactedLog:
    """Returns a log with these keys, two per batch, four batches per segment."""
    log = CompactedLog()
    for at in range(0, len(keys), 2):
        log.append(*((b"%03d" % key, b"1") for key in keys[at : at + 2]))
        if at % 8 == 6:
            log.roll()
    log.roll()
    return log


def index_of(log: CompactedLog) -> tuple[IndexedSegment, ...]:
    meter = meter_of(log.log, log.log.generation)
    return SegmentIndex(HASH_KEY, SETTINGS, meter).index_segments(log.log.cleaning_view().segments)


def mark(
    log: CompactedLog, offset_map: OffsetMap, start_offset: int, window_bytes: int = 1 << 20
) -> tuple[list[int], KeyParts]:
    """Returns the marked offsets, and how the map was filled. Every offset is an entry."""
    segments = index_of(log)
    section = dirty_section(
        segments, start_offset=Offset(start_offset), end_offset=log.log.log_end_offset
    )
    parts = KeyParts(section, offset_map)
    meter = meter_of(log.log, log.log.generation)
    verifier = PassVerifier(SETTINGS, meter=meter, monotonic=lambda: 0.0)
    marked: list[int] = []
    for span in windows([each.totals.entries for each in segments], window_bytes):
        window = segments[span]
        for segment, its in zip(window, mark_window(window, section, parts, verifier), strict=True):
            offsets = [segment.row.base_offset + at for at in bits_of(its)]
            assert len(offsets) == its.superseded
            marked += offsets
    return marked, parts


def bits_of(its: Marked) -> list[int]:
    return [at for at in range(8 * len(its.marks)) if its.marks[at >> 3] >> (at & 7) & 1]


def superseded(keys: Sequence[int], start_offset: int) -> list[int]:
    """Returns the offsets below the last one of their key, if that one is dirty."""
    last = {key: offset for offset, key in enumerate(keys) if offset >= start_offset}
    return [offset for offset, key in enumerate(keys) if offset < last.get(key, -1)]


def test_what_a_dirty_record_supersedes_is_marked_and_nothing_else() -> None:
    keys = [1, 2, 3, 2, 4, 5, 1, 6, 2, 7, 3, 3]

    assert mark(log_of(keys), OffsetMap(24 * 100, HASH_KEY), 8)[0] == [1, 2, 3, 10]


@given(
    keys=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    clean=st.floats(0, 1),
    slots=st.sampled_from([16, 18, 100]),
    window_bytes=st.sampled_from([1, 2, 100]),
)
def test_any_map_and_any_windows_mark_what_the_rule_says(
    keys: list[int], clean: float, slots: int, window_bytes: int
) -> None:
    start_offset = int(clean * len(keys)) // 2 * 2

    marked, _ = mark(log_of(keys), OffsetMap(24 * slots, HASH_KEY), start_offset, window_bytes)

    assert marked == superseded(keys, start_offset)


def test_a_map_of_sixteen_slots_takes_any_number_of_keys_in_parts() -> None:
    keys = list(range(400)) * 2
    offset_map = OffsetMap(24 * 16, HASH_KEY)

    marked, parts = mark(log_of(keys), offset_map, 0)

    assert marked == list(range(400))
    assert parts.keys == 400
    assert 400 / offset_map.capacity <= parts.count <= 400
    assert parts.keys <= parts.capacity


def test_keys_that_fit_take_one_part_and_no_more_memory_than_they_need() -> None:
    offset_map = OffsetMap(24 * 1000, HASH_KEY)
    memory_has_room_for = offset_map.capacity

    _, parts = mark(log_of(range(40)), offset_map, 0)

    assert (parts.count, parts.keys, offset_map.capacity) == (1, 40, 40)
    assert parts.capacity == memory_has_room_for, "the utilization is that of the memory"


def test_repeated_keys_need_no_part_of_their_own() -> None:
    """The sample counts distinct keys, not records."""
    random = Random(0)
    keys = [random.randrange(50) for _ in range(2000)]

    _, parts = mark(log_of(keys), OffsetMap(24 * 200, HASH_KEY), 0)

    assert (parts.count, parts.keys) == (1, 50)


def test_nothing_dirty_is_no_part_and_reads_nothing() -> None:
    log = log_of(range(16))
    index_of(log)
    segments = index_of(log)
    log.fs.faults.fail("read", 5)
    section = dirty_section(segments, start_offset=Offset(16), end_offset=Offset(16))
    meter = meter_of(log.log, log.log.generation)
    verifier = PassVerifier(SETTINGS, meter=meter, monotonic=lambda: 0.0)

    marked = mark_window(segments, section, KeyParts(section, OffsetMap(384, HASH_KEY)), verifier)

    assert [its.superseded for its in marked] == [0, 0]
    assert (section.sources, section.end_offset) == ([], 16)


def test_halves_cover_a_part() -> None:
    assert Part(0, 1).halves() == (Part(0, 2), Part(1, 2))
    assert Part(2, 5).halves() == (Part(4, 10), Part(5, 10))


@pytest.mark.parametrize(
    ("counts", "bytes_max", "cut"),
    [
        pytest.param([], 10, [], id="no_segments"),
        pytest.param([8, 8, 8], 3, [[8, 8, 8]], id="all_fit"),
        pytest.param([8, 8, 8], 2, [[8, 8], [8]], id="two_fit"),
        pytest.param([8, 80, 8], 2, [[8], [80], [8]], id="one_always_fits"),
        pytest.param([0, 0, 100, 0], 1, [[0, 0], [100], [0]], id="no_marks_are_no_bytes"),
    ],
)
def test_windows_hold_what_their_marks_let_them(
    counts: list[int], bytes_max: int, cut: list[list[int]]
) -> None:
    assert [counts[span] for span in windows(counts, bytes_max)] == cut


@given(counts=st.lists(st.integers(0, 100), max_size=30), bytes_max=st.integers(1, 30))
def test_windows_are_all_segments_in_order_and_in_bounds(counts: list[int], bytes_max: int) -> None:
    cut = [counts[span] for span in windows(counts, bytes_max)]

    assert [count for window in cut for count in window] == counts
    for window in cut:
        assert len(window) == 1 or sum(map(marks_bytes, window)) <= bytes_max

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Offset, Position, RelativeOffset
from storage.formats.segment_index import SegmentIndex

STEPS = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 400), st.integers(0, 3)), max_size=30)


def index_of(steps: list[tuple[int, int, int]]) -> tuple[SegmentIndex, list[tuple[int, int, int]]]:
    """An index of batches, each (offsets, bytes, milliseconds) after the one before."""
    index, entries = SegmentIndex(), []
    offset = position = 0
    timestamp = 1000
    for offsets, size, time in steps:
        offset, position, timestamp = offset + offsets, position + size, timestamp + time
        index.add(RelativeOffset(offset), Position(position), timestamp, RelativeOffset(offset))
        entries.append((offset, position, timestamp))
    return index, entries


@given(STEPS, st.integers(0, 200), st.integers(0, 13_000))
def test_lookups_agree_with_a_plain_search(
    steps: list[tuple[int, int, int]], offset: int, position: int
) -> None:
    index, entries = index_of(steps)
    found = bisect_right([entry[0] for entry in entries], offset)
    assert index.entry_at_or_before(RelativeOffset(offset)) == (
        entries[found - 1][:2] if found else None
    )
    before = [entry[:2] for entry in entries if entry[1] <= position]
    assert index.entry_up_to_position(Position(position)) == (before[-1] if before else None)


@given(STEPS, st.integers(990, 1100))
def test_time_lookup_never_skips_a_young_record(
    steps: list[tuple[int, int, int]], timestamp: int
) -> None:
    index, entries = index_of(steps)
    entry = index.entry_before_timestamp(timestamp)
    before = entry[1] if entry is not None else -1
    assert all(time < timestamp for offset, _, time in entries if offset <= before)


@given(STEPS)
def test_files_are_kafkas_and_are_read_back(steps: list[tuple[int, int, int]]) -> None:
    index, entries = index_of(steps)
    assert index.offset_file() == b"".join(struct.pack(">ii", o, p) for o, p, _ in entries)
    times = list(struct.iter_unpack(">qi", index.time_file()))
    assert times == sorted(set(times))
    size = entries[-1][1] + 400 if entries else 0
    span = entries[-1][0] + 1 if entries else 0
    read = SegmentIndex.from_files(index.offset_file(), index.time_file(), size=size, span=span)
    assert read.offset_file() == index.offset_file()
    assert read.time_file() == index.time_file()


@given(STEPS, st.integers(0, 160))
def test_truncated_index_is_that_of_the_shorter_segment(
    steps: list[tuple[int, int, int]], end: int
) -> None:
    index, _ = index_of(steps)
    kept, offset = [], 0
    for step in steps:
        offset += step[0]
        if offset < end:
            kept.append(step)
    index.truncate(RelativeOffset(end))
    assert index.offset_file() == index_of(kept)[0].offset_file()
    assert index.time_file() == index_of(kept)[0].time_file()


def test_entries_of_the_kernel_are_taken_as_they_come() -> None:
    index = SegmentIndex()
    index.add_quadruples(memoryview(array("q", [109, 61, 5, 104, 120, 700, 9, 120])), Offset(100))
    assert index.offset_file() == struct.pack(">iiii", 9, 61, 20, 700)
    assert index.time_file() == struct.pack(">qiqi", 5, 4, 9, 20)


@pytest.mark.parametrize("base_offset", [0, 100, 1 << 40])
def test_an_entry_of_the_kernel_without_any_timestamp_lies_within_its_segment(
    base_offset: int,
) -> None:
    index = SegmentIndex()
    index.add_quadruples(memoryview(array("q", [base_offset + 9, 61, -1, -1])), Offset(base_offset))
    files = index.offset_file(), index.time_file()
    assert SegmentIndex.from_files(*files, size=100, span=10).last_timestamp == -1


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        pytest.param(b"\0" * 7, b"", id="cut_inside_an_entry"),
        pytest.param(b"", b"\0" * 13, id="time_index_cut_inside_an_entry"),
        pytest.param(struct.pack(">iiii", 3, 100, 3, 200), b"", id="offsets_stand_still"),
        pytest.param(struct.pack(">iiii", 3, 100, 4, 100), b"", id="positions_stand_still"),
        pytest.param(b"\0" * 16, b"", id="zeros_of_a_power_cut"),
        pytest.param(struct.pack(">ii", 50, 100), b"", id="offset_beyond_the_segment"),
        pytest.param(struct.pack(">ii", 5, 1000), b"", id="position_beyond_the_segment"),
        pytest.param(b"", struct.pack(">qiqi", 9, 1, 9, 2), id="times_stand_still"),
        pytest.param(b"", struct.pack(">qi", 9, 50), id="time_offset_beyond_the_segment"),
    ],
)
def test_files_that_cannot_be_of_this_segment_are_noticed(offsets: bytes, times: bytes) -> None:
    with pytest.raises(ValueError):
        SegmentIndex.from_files(offsets, times, size=1000, span=50)

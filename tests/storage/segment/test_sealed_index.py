from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire.numbers import Position, RelativeOffset
from storage.files.errors import MissingFile
from storage.formats.segment_index import SegmentIndex
from storage.segment.sealed_index import ENTRIES_PER_BLOCK, SealedIndex
from tests.harness.memory_fs import MemoryFileSystem

STEPS = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 400), st.integers(0, 3)), max_size=30)


def indexes_of(steps: list[tuple[int, int, int]]) -> tuple[SegmentIndex, SealedIndex]:
    """The same entries in memory and in files."""
    index = SegmentIndex()
    offset, position, timestamp = 0, 0, 1000
    for offsets, size, time in steps:
        offset, position, timestamp = offset + offsets, position + size, timestamp + time
        index.add(RelativeOffset(offset), Position(position), timestamp, RelativeOffset(offset))
    return index, sealed(
        index.offset_file(), index.time_file(), size=position + 400, span=offset + 1
    )


def sealed(offsets: bytes, times: bytes, *, size: int, span: int) -> SealedIndex:
    disk = MemoryFileSystem()
    disk.write_bytes("/o", offsets)
    disk.write_bytes("/t", times)
    return SealedIndex(disk, "/o", "/t", size=size, span=span)


@given(STEPS, st.integers(0, 200), st.integers(0, 13_000), st.integers(990, 1100))
def test_files_answer_as_the_entries_in_memory_do(
    steps: list[tuple[int, int, int]], offset: int, position: int, timestamp: int
) -> None:
    index, sealed_index = indexes_of(steps)
    assert sealed_index.entry_at_or_before(RelativeOffset(offset)) == index.entry_at_or_before(
        RelativeOffset(offset)
    )
    assert sealed_index.entry_up_to_position(Position(position)) == index.entry_up_to_position(
        Position(position)
    )
    assert sealed_index.entry_before_timestamp(timestamp) == index.entry_before_timestamp(timestamp)


def test_index_of_many_blocks_is_searched_without_reading_it_all() -> None:
    count = 100 * ENTRIES_PER_BLOCK + 7
    index, sealed_index = indexes_of([(1, 100, 1)] * count)
    for offset in (0, 1, ENTRIES_PER_BLOCK, ENTRIES_PER_BLOCK + 1, count // 2, count, count + 5):
        assert sealed_index.entry_at_or_before(RelativeOffset(offset)) == index.entry_at_or_before(
            RelativeOffset(offset)
        )
    disk = MemoryFileSystem()
    disk.write_bytes("/o", index.offset_file())
    disk.write_bytes("/t", index.time_file())
    fresh = SealedIndex(disk, "/o", "/t", size=count * 100 + 400, span=count + 1)
    reads: list[str] = []
    original = disk.faults.check

    def check(action: str, path: str, size: int = 0) -> None:
        reads.extend([action] if action == "read" else [])
        original(action, path, size)

    disk.faults.check = check  # type: ignore[method-assign]
    assert fresh.entry_at_or_before(RelativeOffset(count // 3)) == (count // 3, count // 3 * 100)
    assert 0 < len(reads) < 10
    assert fresh.entry_at_or_before(RelativeOffset(count // 3)) is not None
    assert len(reads) < 10, "the blocks were kept"


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        pytest.param(b"\0" * 7, b"", id="cut_inside_an_entry"),
        pytest.param(b"", b"\0" * 13, id="time_index_cut_inside_an_entry"),
        pytest.param(b"\0" * 16, b"", id="zeros_of_a_power_cut"),
        pytest.param(struct.pack(">ii", 50, 100), b"", id="offset_beyond_the_segment"),
        pytest.param(struct.pack(">ii", 5, 1000), b"", id="position_beyond_the_segment"),
        pytest.param(b"", struct.pack(">qi", 9, 50), id="time_offset_beyond_the_segment"),
    ],
)
def test_files_that_cannot_be_of_this_segment_are_noticed(offsets: bytes, times: bytes) -> None:
    with pytest.raises(ValueError):
        sealed(offsets, times, size=1000, span=50)


def test_missing_file_is_noticed() -> None:
    with pytest.raises(MissingFile):
        SealedIndex(MemoryFileSystem(), "/o", "/t", size=1, span=1)

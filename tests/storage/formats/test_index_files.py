"""Index files grow at their ends, and the entries before a recovery point are never at risk."""

from __future__ import annotations

import errno
from random import Random

import pytest

from protocol.wire.numbers import Position, RelativeOffset
from storage.files.errors import MissingFile, NoSpace
from storage.formats.index_files import TAIL_BYTES_MAX, read_index_files, write_index_files
from storage.formats.segment_index import EMPTY_MARK, IndexMark, SegmentIndex
from tests.harness.memory_fs import Loss, MemoryFileSystem

PATHS = ("/log/0.index", "/log/0.timeindex")


def disk() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/log")
    fs.sync_directory("/")
    return fs


def index_of(count: int) -> SegmentIndex:
    index = SegmentIndex()
    for number in range(1, count + 1):
        index.add(
            RelativeOffset(10 * number),
            Position(100 * number),
            1000 + number,
            RelativeOffset(10 * number),
        )
    return index


def read(fs: MemoryFileSystem, count: int, *, may_be_longer: bool = False) -> SegmentIndex:
    """Read the index of a segment that ends behind the batch of entry `count`."""
    return read_index_files(
        fs, PATHS, size=100 * count + 50, span=10 * count + 1, may_be_longer=may_be_longer
    )


def test_entries_are_put_behind_those_that_are_there() -> None:
    fs, index = disk(), index_of(9)
    write_index_files(fs, PATHS, index, IndexMark(4, 4))
    write_index_files(fs, PATHS, index, index.mark, kept=IndexMark(4, 4))
    assert fs.read_bytes(PATHS[0]) == index.offset_file()
    assert fs.read_bytes(PATHS[1]) == index.time_file()


def test_what_a_torn_write_left_behind_the_kept_entries_is_replaced() -> None:
    fs, index = disk(), index_of(9)
    write_index_files(fs, PATHS, index, IndexMark(4, 4))
    for path in PATHS:
        fs.write_bytes(path, fs.read_bytes(path) + b"\xff" * 21)
    assert read(fs, 4, may_be_longer=True).mark == IndexMark(4, 4)
    write_index_files(fs, PATHS, index, index.mark, kept=IndexMark(4, 4))
    assert read(fs, 9).offset_file() == index.offset_file()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [None, 0, 10])
def test_files_that_lost_their_entries_are_rewritten(path: str, size: int | None) -> None:
    fs, index = disk(), index_of(9)
    write_index_files(fs, PATHS, index, IndexMark(4, 4))
    if size is None:
        fs.unlink(path)
    else:
        fs.open(path).truncate(size)
    write_index_files(fs, PATHS, index, index.mark, kept=IndexMark(4, 4))
    assert read(fs, 9).time_file() == index.time_file()


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_or_a_full_disk_while_entries_are_added_harms_none_that_were_kept(
    seed: int,
) -> None:
    fs, index, random = disk(), index_of(900), Random(seed)
    write_index_files(fs, PATHS, index, IndexMark(400, 400))
    fs.sync_directory("/log")
    left: list[MemoryFileSystem] = []
    fs.on_operation = lambda _a, _p: left.append(fs.after_crash(Loss.TORN, random))
    if seed % 2:
        fs.faults.fail("append to", errno.ENOSPC, path=random.choice(PATHS))
        with pytest.raises(NoSpace):
            write_index_files(fs, PATHS, index, index.mark, kept=IndexMark(400, 400))
    else:
        write_index_files(fs, PATHS, index, index.mark, kept=IndexMark(400, 400))
    for each in [*left, fs]:
        found = read(each, 400, may_be_longer=True)
        assert found.offset_file() == index.offset_file(0, 400)
        assert found.time_file() == index.time_file(0, 400)


def test_an_index_that_ends_far_from_the_end_of_its_segment_has_lost_entries() -> None:
    fs = disk()
    write_index_files(fs, PATHS, index_of(3), IndexMark(3, 3))
    with pytest.raises(ValueError, match="its segment at"):
        read_index_files(fs, PATHS, size=TAIL_BYTES_MAX + 400, span=1 << 20, may_be_longer=True)


def test_a_time_index_without_entries_beside_an_offset_index_with_some_has_lost_them() -> None:
    fs = disk()
    write_index_files(fs, PATHS, index_of(3), IndexMark(3, 0))
    with pytest.raises(ValueError, match="has lost its entries"):
        read(fs, 3, may_be_longer=True)


def test_missing_files_raise() -> None:
    fs = disk()
    write_index_files(fs, PATHS, index_of(3), EMPTY_MARK)
    fs.unlink(PATHS[1])
    with pytest.raises(MissingFile):
        read(fs, 0, may_be_longer=True)

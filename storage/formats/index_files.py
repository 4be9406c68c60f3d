"""Writes the two index files of a segment as it grows, and reads them back as far as a manifest goes.

A checkpoint appends the entries since the last checkpoint, and sealing the segment appends the rest. So
a crash during a write never harms the entries that a recovery point relies on.
"""

from __future__ import annotations

from protocol.wire.numbers import Position
from storage.files.errors import MissingFile
from storage.files.files import FileSystem
from storage.formats.segment_index import (
    EMPTY_MARK,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexMark,
    SegmentIndex,
)

TAIL_BYTES_MAX = 16 << 20
"""An index whose last entry is further than this from its segment's end has lost entries."""


def write_index_files(
    fs: FileSystem,
    paths: tuple[str, str],
    index: SegmentIndex,
    end: IndexMark,
    *,
    kept: IndexMark = EMPTY_MARK,
) -> None:
    """Make the entries up to `end` durable. The files' names are durable after a sync of the directory.

    Args:
        paths: of the offset index and of the time index.
        kept: the entries that the files already have; everything after them is replaced.

    Raises:
        DiskError: the disk failed; the kept entries are still there.
    """
    offsets = index.offset_file(kept.offset_entries, end.offset_entries)
    times = index.time_file(kept.time_entries, end.time_entries)
    is_extended = _extend(
        fs, paths[0], kept.offset_entries * OFFSET_ENTRY_BYTES, offsets
    ) and _extend(fs, paths[1], kept.time_entries * TIME_ENTRY_BYTES, times)
    if not is_extended:
        fs.write_bytes(paths[0], index.offset_file(0, end.offset_entries))
        fs.write_bytes(paths[1], index.time_file(0, end.time_entries))


def _extend(fs: FileSystem, path: str, kept_bytes: int, data: bytes) -> bool:
    """Append `data` after the kept bytes, durably. Returns False if the kept bytes are missing."""
    if not kept_bytes:
        fs.write_bytes(path, data)
        return True
    try:
        file = fs.open(path)
    except MissingFile:
        return False
    try:
        if file.size < kept_bytes:
            return False
        if file.size > kept_bytes:
            file.truncate(kept_bytes)
        file.append((data,))
        file.sync()
        return True
    finally:
        file.close()


def read_index_files(
    fs: FileSystem, paths: tuple[str, str], *, size: int, span: int, may_be_longer: bool
) -> SegmentIndex:
    """Returns the index of a segment with `size` bytes and offsets in [base, base + span).

    Args:
        may_be_longer: the files may have more entries, of later appends; these are left out.

    Raises:
        ValueError: the files do not fit such a segment.
        MissingFile: one of them is missing.
    """
    offset_file, time_file = map(fs.read_bytes, paths)
    if not may_be_longer:
        return SegmentIndex.from_files(offset_file, time_file, size=size, span=span)
    index = SegmentIndex.from_longer_files(offset_file, time_file, size=size, span=span)
    last = index.entry_up_to_position(Position(size))
    if size - (last[1] if last is not None else 0) > TAIL_BYTES_MAX:
        raise ValueError(f"{paths[0]} ends at {last}, its segment at {size}")
    if last is not None and not index.mark.time_entries:
        raise ValueError(f"{paths[1]} has lost its entries")
    return index

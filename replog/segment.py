"""A segment file of the log: its name, and how a start or a reader reads it and changes nothing.

    <base index, 20 digits>.replog           continues the segment before it
    <base index, 20 digits>.reset.replog     begins the log, after an installed snapshot

`frames.py` has the bytes. `entry_log.py` appends to the last segment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from replog.entry import Frame
from replog.frames import SEGMENT_HEADER_BYTES, SegmentHeader, decode_header, scan
from replog.torn import frame_damage, has_lost_sector
from storage.files.files import FileSystem

SUFFIX, RESET_SUFFIX = ".replog", ".reset.replog"
NAME = re.compile(r"([0-9]{20})(\.reset)?\.replog")


@dataclass(slots=True, kw_only=True)
class Segment:
    """One file of the log."""

    path: str
    header: SegmentHeader
    end: int
    """The index after its last entry."""
    size: int
    """Bytes of its sound frames, with the header."""
    last_term: int

    @property
    def base(self) -> int:
        """The index of its first entry, or of the one that will be."""
        return self.header.base_index


@dataclass(slots=True, kw_only=True)
class FoundSegment:
    """A segment as it was read: its frames, and what a crash left after them."""

    segment: Segment
    frames: list[Frame]
    torn: bytes
    damage: str | None
    """Why the bytes after the frames cannot be a torn frame; None if they can, or if there are none."""


def segment_name(base: int, *, is_reset: bool) -> str:
    """Returns the name of a segment's file."""
    return f"{base:020d}{RESET_SUFFIX if is_reset else SUFFIX}"


def read_segments(
    files: FileSystem, directory: str, names: Sequence[str], covered: int
) -> list[FoundSegment]:
    """Read the segments among these names, and change nothing.

    Of a segment whose entries are all below `covered`, only the header is read: a start does not need
    them. It ends where the next one begins.

    Raises:
        CorruptLog: a header is damaged, or indexes do not follow each other.
        FormatFromTheFuture: a later release wrote one.
    """
    ours = [name for name in names if NAME.fullmatch(name)]
    found: list[FoundSegment] = []
    for name, following in zip_longest(ours, ours[1:]):
        path = f"{directory}/{name}"
        segment = None
        if following is not None and int(following[:20]) <= covered:
            segment = _read_header(files, path, f"{directory}/{following}")
        segment = segment or read_segment(files, path)
        if segment is not None:
            found.append(segment)
    return found


def _read_header(files: FileSystem, path: str, following: str) -> FoundSegment | None:
    """Returns a segment without its frames; None if it must be read to know its end."""
    header, after = _header_of(files, path), _header_of(files, following)
    if header is None or after is None or after.is_reset:
        return None
    segment = Segment(
        path=path,
        header=header,
        end=after.base_index,
        size=files.size(path),
        last_term=after.previous_term,
    )
    return FoundSegment(segment=segment, frames=[], torn=b"", damage=None)


def _header_of(files: FileSystem, path: str) -> SegmentHeader | None:
    file = files.open(path)
    try:
        data = file.read_at(0, SEGMENT_HEADER_BYTES)
    finally:
        file.close()
    if len(data) < SEGMENT_HEADER_BYTES or has_lost_sector(data, 0):
        return None
    return decode_header(data, path)


def read_segment(files: FileSystem, path: str) -> FoundSegment | None:
    """Read one segment and change nothing. Returns None for one whose header was never written.

    Raises:
        CorruptLog: its header is damaged, or its indexes do not follow each other.
        FormatFromTheFuture: a later release wrote it.
    """
    data = files.read_bytes(path)
    if len(data) < SEGMENT_HEADER_BYTES or has_lost_sector(data[:SEGMENT_HEADER_BYTES], 0):
        return None
    header = decode_header(data, path)
    frames, end = scan(data, header, path)
    last = frames[-1] if frames else None
    segment = Segment(
        path=path,
        header=header,
        end=last.end if last else header.base_index,
        size=end,
        last_term=last.term if last else header.previous_term,
    )
    torn = data[end:]
    damage = frame_damage(data, end) if torn else None
    return FoundSegment(segment=segment, frames=frames, torn=torn, damage=damage)


def remove_segments(files: FileSystem, directory: str, paths: Sequence[str]) -> None:
    """Remove segments durably: the newest first, and reset segments once the others are gone.

    A start would take the segments that follow a reset segment for a log whose snapshot is missing.
    """
    for is_reset in (False, True):
        some = [
            path for path in sorted(paths, reverse=True) if path.endswith(RESET_SUFFIX) is is_reset
        ]
        for path in some:
            files.unlink(path)
        if some:
            files.sync_directory(directory)

"""The checks and the renames of a swap; `SegmentList.swap` (`segment_list.py`) carries it out.

    cleaned files written, synced, named *.cleaned
    manifest committed            <- from here on the cleaned segments are the log
    files renamed, directory synced
    sources retired

After a crash before the commit, recovery removes the files; after a crash behind it, recovery finishes
the renames (ARCHITECTURE.md, "On disk").
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.files.errors import SwapRefused
from storage.files.files import FileSystem
from storage.files.paths import KEYS, SEGMENT_KINDS
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegment
from storage.segment.segment import Segment


def check_swap(segments: Sequence[Segment], sources: Sequence[SegmentRow]) -> None:
    """Raise SwapRefused unless the sources are adjacent sealed segments of the list."""
    sealed = [_name_of(segment) for segment in segments[:-1]]
    names = [(row.base_offset, row.file_version) for row in sources]
    start = sealed.index(names[0]) if names and names[0] in sealed else -1
    if start < 0 or sealed[start : start + len(names)] != names:
        raise SwapRefused("a source segment is no longer in the log")


def swapped(
    segments: Sequence[Segment], sources: Sequence[SegmentRow], new: Sequence[Segment]
) -> tuple[Segment, ...]:
    """Returns the list of segments with the adjacent sources replaced by `new`."""
    names = {(row.base_offset, row.file_version) for row in sources}
    start = next(at for at, segment in enumerate(segments) if _name_of(segment) in names)
    return (*segments[:start], *new, *segments[start + len(names) :])


def place_files(fs: FileSystem, directory: str, cleaned: Sequence[CleanedSegment]) -> None:
    """Rename the files of committed segments to their final names, durably."""
    for each in cleaned:
        for kind in SEGMENT_KINDS:
            if kind != KEYS or fs.exists(each.staged_path(KEYS)):
                fs.rename(each.staged_path(kind), each.final_path(kind))
    fs.sync_directory(directory)


def _name_of(segment: Segment) -> tuple[int, int]:
    return segment.base_offset, segment.file_version

"""Putting cleaned segments in the place of their sources, and what makes that refuse.

    cleaned files written, synced, named *.cleaned
    manifest committed            <- from here on the cleaned segments are the log
    files renamed, directory synced
    sources retired

A crash before the commit leaves files that recovery removes; one after it leaves renames that
recovery finishes (ARCHITECTURE.md, "On disk").
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.cleaned_segment import CleanedSegment
from storage.errors import SwapRefused
from storage.files import FileSystem
from storage.manifest import SegmentRow
from storage.paths import KEYS, SEGMENT_KINDS
from storage.segment import Segment


def check_swap(segments: Sequence[Segment], sources: Sequence[SegmentRow]) -> None:
    """Raise SwapRefused unless the sources are sealed segments of the list, side by side."""
    sealed = [_name_of(segment) for segment in segments[:-1]]
    names = [(row.base_offset, row.file_version) for row in sources]
    start = sealed.index(names[0]) if names and names[0] in sealed else -1
    if start < 0 or sealed[start : start + len(names)] != names:
        raise SwapRefused("a source segment is not in the log any more")


def swapped(
    segments: Sequence[Segment], sources: Sequence[SegmentRow], new: Sequence[Segment]
) -> tuple[Segment, ...]:
    """The list of segments with `new` where the sources, neighbours of each other, stood."""
    names = {(row.base_offset, row.file_version) for row in sources}
    start = next(at for at, segment in enumerate(segments) if _name_of(segment) in names)
    return (*segments[:start], *new, *segments[start + len(names) :])


def place_files(fs: FileSystem, directory: str, cleaned: Sequence[CleanedSegment]) -> None:
    """Give the files of committed segments their final names, durably."""
    for each in cleaned:
        for kind in SEGMENT_KINDS:
            if kind != KEYS or fs.exists(each.staged_path(KEYS)):
                fs.rename(each.staged_path(kind), each.final_path(kind))
    fs.sync_directory(directory)


def _name_of(segment: Segment) -> tuple[int, int]:
    return segment.base_offset, segment.file_version

"""Taking over a cleaned segment that another process has written, in a folder on the same disk.

    its files renamed into the log's directory, *.cleaned, under a version of the log's own
    each looked at: a file, not a link to one, and no other name for it
    synced

From then on it is as one that a pass of this process has written: a crash leaves files that recovery
removes, a swap lists it. What its batches and indexes hold is for others to verify. A key sidecar is not
taken: it says another version, and who verifies the segment makes one.
"""

from __future__ import annotations

from dataclasses import replace

from storage.cleaned_segment import CleanedSegment, discard_staged
from storage.errors import CorruptLog
from storage.files import FileSystem
from storage.manifest import SegmentRow
from storage.paths import LOG, OFFSET_INDEX, TIME_INDEX, join, segment_file

TAKEN_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX)


def take_segment(
    fs: FileSystem,
    folder: str,
    row: SegmentRow,
    directory: str,
    version: int,
) -> CleanedSegment:
    """Move the files of the segment that `row` names from `folder` into a log's directory.

    Args:
        version: the log's, never used before.

    Raises:
        CorruptLog: what has the name is no file of its own; nothing was taken.
        DiskError: a file is not there, or cannot be had; nothing was taken.
    """
    taken = CleanedSegment(replace(row, file_version=version), directory, fs)
    try:
        for kind in TAKEN_KINDS:
            _take(fs, _staged(folder, row, kind), taken.staged_path(kind))
    except BaseException:
        discard_staged(fs, directory, row.base_offset, version)
        raise
    return taken


def _take(fs: FileSystem, source: str, target: str) -> None:
    fs.rename(source, target)
    if not fs.is_plain_file(target):
        raise CorruptLog(source, 0, "it is not a file of its own")
    file = fs.open(target)
    try:
        file.sync()
    finally:
        file.close()


def _staged(folder: str, row: SegmentRow, kind: str) -> str:
    return join(folder, segment_file(row.base_offset, row.file_version, kind, cleaned=True))

"""Takes over a cleaned segment that another process has written, in a folder on the same disk.

    its files renamed into the log's directory, *.cleaned, with a version that the log chose
    each checked: a regular file, no symbolic link, no second hard link
    synced

From then on the segment is treated like one that a cleaning pass of this process has written: recovery
removes its files after a crash, a swap adds it to the log. The caller verifies the contents of its
batches and indexes. A key sidecar is not taken, because it names another version; the verification
writes one.
"""

from __future__ import annotations

from dataclasses import replace

from storage.files.errors import CorruptLog
from storage.files.files import FileSystem
from storage.files.paths import LOG, OFFSET_INDEX, TIME_INDEX, join, segment_file
from storage.formats.manifest import SegmentRow
from storage.segment.cleaned_segment import CleanedSegment, discard_staged

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
        version: a new version of the log's, never used before.

    Raises:
        CorruptLog: a file is a link or has a second name; nothing was taken.
        DiskError: a file is missing or cannot be moved; nothing was taken.
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
        raise CorruptLog(source, 0, "it is a link, or has a second hard link")
    file = fs.open(target)
    try:
        file.sync()
    finally:
        file.close()


def _staged(folder: str, row: SegmentRow, kind: str) -> str:
    return join(folder, segment_file(row.base_offset, row.file_version, kind, cleaned=True))

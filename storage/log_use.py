"""Whether a log was ever written to: such a log is never made again, whatever else says it is new."""

from __future__ import annotations

from storage.files import FileSystem
from storage.paths import LOG, join, parse_segment_file


def was_used(fs: FileSystem, directory: str) -> bool:
    """Whether the files of a log show that it has, or had, records.

    A log that was only created has one segment, which begins at offset 0 and is empty. A retention
    or a deletion of records leaves a segment that begins later.

    Raises:
        DiskError: the disk failed, so nobody knows.
    """
    for name in fs.list(directory):
        if name.startswith("cut."):
            return True
        file = parse_segment_file(name)
        if file is None:
            continue
        if file.base_offset or (file.kind == LOG and fs.size(join(directory, name))):
            return True
    return False

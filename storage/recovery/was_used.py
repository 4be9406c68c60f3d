"""Whether a log was ever written to: if so, it is never created again, even if metadata calls it new."""

from __future__ import annotations

from storage.files.files import FileSystem
from storage.files.paths import CUT, LOG, join, parse_segment_file


def was_used(fs: FileSystem, directory: str) -> bool:
    """Returns whether the log has, or once had, records, judged by its files.

    A log that was created and never written to has one empty segment with base offset 0. Retention and
    DeleteRecords leave a segment with a higher base offset.

    Raises:
        DiskError: the disk failed, so the answer is unknown.
    """
    for name in fs.list(directory):
        if name.startswith(CUT):
            return True
        file = parse_segment_file(name)
        if file is None:
            continue
        if file.base_offset or (file.kind == LOG and fs.size(join(directory, name))):
            return True
    return False

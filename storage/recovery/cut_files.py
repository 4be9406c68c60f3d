"""Keeps the bytes that recovery cuts off a log in files beside it, counts them and logs the cut.

cut.<offset>.<n>    the bytes from that offset on; n numbers the files of one offset
"""

from __future__ import annotations

import logging

from storage.batches.scan import CHUNK_BYTES
from storage.files.errors import NoSpace
from storage.files.files import File, FileSystem, unlink_if_there
from storage.files.paths import LOG, SegmentFile, cut_file, join, segment_file
from storage.formats.log_identity import LogIdentity
from storage.recovery.progress import RecoveryProgress
from storage.segment.segment import Segment

_log = logging.getLogger("storage.recovery.cut_files")


class CutFiles:
    """The cut files of one log."""

    __slots__ = ("_directory", "_fs", "_log_name", "_progress")

    def __init__(self, fs: FileSystem, identity: LogIdentity, progress: RecoveryProgress) -> None:
        self._fs = fs
        self._directory = identity.directory
        self._log_name = identity.topic_partition
        self._progress = progress

    def cut(self, segment: Segment, position: int, size: int, reason: str) -> None:
        """Truncate the segment at `position`; the bytes after it are kept in a cut file, and logged."""
        aside = self._free_cut_name(segment.end_offset)
        _log.warning(
            "%s: cutting %d bytes at offset %d, kept in %s: %s",
            self._log_name,
            size - position,
            segment.end_offset,
            aside,
            reason,
        )
        with segment.pinned() as file:
            try:
                self._keep(file, position, size, aside)
            except NoSpace:
                # The segment still holds these bytes, so the partial copy can go.
                unlink_if_there(self._fs, aside)
                raise
            file.truncate(position)
        self._progress.cut(size - position)

    def _keep(self, file: File, position: int, size: int, aside: str) -> None:
        """Copy the bytes from `position` on to a file, durably. Raises DiskError."""
        kept = self._fs.open(aside, create=True)
        try:
            for start in range(position, size, CHUNK_BYTES):
                kept.append((file.read_at(start, min(CHUNK_BYTES, size - start)),))
            kept.sync()
        finally:
            kept.close()
        self._fs.sync_directory(self._directory)

    def set_aside(self, file: SegmentFile) -> None:
        """Rename a segment that lies past the cut, so that it no longer belongs to the log."""
        name = segment_file(file.base_offset, file.version, LOG)
        _log.warning("%s: %s lies past the log's end; setting it aside", self._log_name, name)
        aside = self._free_cut_name(file.base_offset)
        size = self._fs.size(join(self._directory, name))
        self._fs.rename(join(self._directory, name), aside)
        self._progress.cut(size)

    def _free_cut_name(self, offset: int) -> str:
        number = 0
        while self._fs.exists(join(self._directory, cut_file(offset, number))):
            number += 1
        return join(self._directory, cut_file(offset, number))

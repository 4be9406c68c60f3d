"""The log on disk: segments of frames, of which the last is appended to.

    cut.<index>.<n>                          a torn frame that was cut off at that index

`segment.py` has the names of the segments and reads them. `recovery.py` decides which of them belong to
the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from replog.entry import FIRST_INDEX, NO_TERM, Frame, Kind
from replog.frames import SEGMENT_HEADER_BYTES, SegmentHeader, encode_frame, encode_header
from replog.segment import FoundSegment, Segment, read_segment, remove_segments, segment_name
from storage.files.errors import CorruptLog, NoSpace, StorageError
from storage.files.files import File, FileSystem

_log = logging.getLogger("replog.entry_log")


class EntryLog:
    """The open log. One thread at a time. After a failed sync it is permanently out of service."""

    __slots__ = (
        "_directory",
        "_ends_in_start",
        "_file",
        "_files",
        "_segments",
        "_torn",
        "appended_bytes",
        "is_broken",
    )

    def __init__(self, files: FileSystem, directory: str, segments: list[Segment]) -> None:
        """Take over the segments, which follow each other; `create` or `adopt` opens the last."""
        # Constant after construction
        self._files = files
        self._directory = directory
        # State: never without a segment once it is open.
        self._segments = segments
        self._file: File | None = None
        # The segment whose torn frame must be cut off before the next append.
        self._torn: FoundSegment | None = None
        # Whether the last entry is a START: the next one begins a segment.
        self._ends_in_start = False
        self.is_broken = False
        """Whether a sync has failed: nothing more can be written."""
        self.appended_bytes = 0
        """Bytes appended since the log was opened."""

    @classmethod
    def create(
        cls,
        files: FileSystem,
        directory: str,
        base: int = FIRST_INDEX,
        previous_term: int = NO_TERM,
    ) -> EntryLog:
        """Create a log that begins at `base`: a reset segment, unless that is the first index."""
        log = cls(files, directory, [])
        log._begin_segment(base, previous_term, is_reset=base != FIRST_INDEX)
        return log

    @classmethod
    def adopt(cls, files: FileSystem, directory: str, found: Sequence[FoundSegment]) -> EntryLog:
        """Open these segments for appending; cut off the torn frame of the last and save it."""
        log = cls(files, directory, [each.segment for each in found])
        last = found[-1]
        log._file = files.open(last.segment.path)
        log._note_last(last.frames)
        # The process that wrote it may not have synced everything that was read.
        log._sync()
        if last.torn:
            log._torn = last
            try:
                log._cut()
            except NoSpace as error:
                _log.warning(
                    "%s: disk full, recovery postponed until the first change: %s",
                    last.segment.path, error,
                )  # fmt: skip
        files.sync_directory(directory)
        return log

    @property
    def start(self) -> int:
        """The index of the first entry that the log has."""
        return self._segments[0].base

    @property
    def end(self) -> int:
        """The index after the last entry. Every entry below it is durable."""
        return self._segments[-1].end

    @property
    def last_term(self) -> int:
        """The term of the last entry, also if that is no longer in the log."""
        return self._segments[-1].last_term

    @property
    def previous_term(self) -> int:
        """The term of the entry before the first."""
        return self._segments[0].header.previous_term

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in order."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def append(self, frame: Frame) -> int:
        """Write entries at the end and sync them. Returns the bytes written.

        Raises:
            StorageError: they were not written; after SyncFailed, nothing more can be written.
        """
        if self.is_broken or self._file is None:
            raise StorageError(f"the log in {self._directory} is out of service: a sync failed")
        if self._torn is not None:
            self._cut()
        assert frame.index == self.end, "entries follow each other"
        assert frame.term >= self.last_term, "terms never decrease"
        parts = encode_frame(frame)
        self._file.append(parts)
        self._sync()
        size = sum(map(len, parts))
        last = self._segments[-1]
        last.size, last.end, last.last_term = last.size + size, frame.end, frame.term
        self._note_last([frame])
        self.appended_bytes += size
        return size

    def roll(self) -> None:
        """Begin a new segment at the end, unless the last one is empty."""
        last = self._segments[-1]
        if self._torn is not None:
            self._cut()
        if last.end > last.base:
            self._begin_segment(last.end, last.last_term, is_reset=False)

    @property
    def ends_in_start(self) -> bool:
        """Whether the last entry is a START and no segment was begun after it, as after a power cut
        between the two."""
        return self._ends_in_start

    def _note_last(self, frames: Sequence[Frame]) -> None:
        """Note what the last segment ends with. Its frames, or the last of them."""
        self._ends_in_start = bool(frames) and frames[-1].contents[-1][0] is Kind.START

    def frames(self, start: int) -> Iterator[Frame]:
        """Yields the frames with the entries from `start` on. The first may begin below it."""
        for segment in list(self._segments):
            if segment.end > start:
                found = read_segment(self._files, segment.path)
                assert found is not None
                if found.segment.end < segment.end:
                    raise CorruptLog(segment.path, found.segment.size, "its entries are damaged")
                yield from (each for each in found.frames if start < each.end <= segment.end)

    def term_at(self, index: int) -> int | None:
        """Returns the term of an entry; None if the log does not know it.

        The log knows the terms of its entries and of the one before them.
        """
        if index == self.start - 1:
            return self.previous_term
        if index == self.end - 1:
            return self.last_term
        for segment in self._segments:
            if segment.base <= index < segment.end:
                if segment.header.previous_term == segment.last_term:
                    return segment.last_term
                return next(self.frames(index)).term
        return None

    def end_of_term(self, term: int) -> tuple[int, int]:
        """Returns the largest term up to `term` in the log, and the index after its last entry."""
        found = (self.previous_term, self.start)
        for segment in self._segments:
            if segment.last_term <= term:
                found = (segment.last_term, segment.end)
                continue
            for frame in self.frames(segment.base):
                if frame.term > term:
                    return found
                found = (frame.term, frame.end)
        return found

    def drop_before(self, index: int) -> None:
        """Remove the segments whose entries are all below `index`, oldest first."""
        while len(self._segments) > 1 and self._segments[0].end <= index:
            self._files.unlink(self._segments[0].path)
            del self._segments[0]

    def truncate(self, end: int) -> int:
        """Remove the entries from `end` on, with the rest of the frame they are in.

        Returns the end that is left.
        """
        while len(self._segments) > 1 and self._segments[-1].base >= end:
            self._files.unlink(self._segments[-1].path)
            self._files.sync_directory(self._directory)
            del self._segments[-1]
            self._reopen_last()
        last = self._segments[-1]
        if last.end > end:
            self._truncate_last(last, end)
        self._note_last(list(self.frames(last.base)))
        return last.end

    def prepare_reset(self, base: int, previous_term: int) -> None:
        """Write the segment with which the log will begin once `reset` is called.

        A start ignores it as long as the snapshot that ends at `base` is not there.
        """
        header = SegmentHeader(base_index=base, previous_term=previous_term, is_reset=True)
        self._write_new(header).close()

    def reset(self, base: int, previous_term: int) -> None:
        """Replace the log by the prepared segment: the snapshot that ends at `base` is durable."""
        path = self._path(base, is_reset=True)
        found = read_segment(self._files, path)
        assert found is not None
        self.replace_with(EntryLog.adopt(self._files, self._directory, [found]))

    def replace_with(self, log: EntryLog) -> None:
        """Become another log in the same directory; remove the segments of this one."""
        self.close()
        old, self._segments = self._segments, log._segments
        self._file, log._file = log._file, None
        self._ends_in_start = log._ends_in_start
        kept = {segment.path for segment in self._segments}
        for segment in reversed(old):
            if segment.path not in kept:
                self._files.unlink(segment.path)
        # Before the first entry is appended: a start would take these for its continuation.
        self._files.sync_directory(self._directory)

    def remove(self) -> None:
        """Close the log and remove all its segments."""
        self.close()
        remove_segments(self._files, self._directory, [each.path for each in self._segments])

    def close(self) -> None:
        """Close the file. Everything appended is already durable."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, base: int, *, is_reset: bool) -> str:
        return f"{self._directory}/{segment_name(base, is_reset=is_reset)}"

    def _begin_segment(self, base: int, previous_term: int, *, is_reset: bool) -> None:
        header = SegmentHeader(base_index=base, previous_term=previous_term, is_reset=is_reset)
        file = self._write_new(header)
        self.close()
        self._file, self._ends_in_start = file, False
        self._segments.append(
            Segment(
                path=file.path,
                header=header,
                end=base,
                size=SEGMENT_HEADER_BYTES,
                last_term=previous_term,
            )
        )

    def _write_new(self, header: SegmentHeader) -> File:
        path = self._path(header.base_index, is_reset=header.is_reset)
        if self._files.exists(path):
            # An attempt that did not complete has created it, and nothing was appended since.
            self._files.unlink(path)
        file = self._files.open(path, create=True)
        try:
            file.append([encode_header(header)])
            file.sync()
            self._files.sync_directory(self._directory)
        except NoSpace:
            file.close()
            self._files.unlink(path)
            raise
        except StorageError:
            # Which of the files a start would find is unknown.
            self.is_broken = True
            raise
        return file

    def _reopen_last(self) -> None:
        self.close()
        self._file = self._files.open(self._segments[-1].path)

    def _truncate_last(self, last: Segment, end: int) -> None:
        assert self._file is not None
        found = read_segment(self._files, last.path)
        assert found is not None
        kept = [frame for frame in found.frames if frame.end <= end]
        # Offsets of frames are not kept in memory: encode again to count.
        size = SEGMENT_HEADER_BYTES + sum(
            len(part) for frame in kept for part in encode_frame(frame)
        )
        self._file.truncate(size)
        self._sync()
        last.size = size
        last.end = kept[-1].end if kept else last.base
        last.last_term = kept[-1].term if kept else last.header.previous_term

    def _sync(self) -> None:
        assert self._file is not None
        try:
            self._file.sync()
        except StorageError:
            # Whether the bytes are on the disk is unknown: a failed sync is never retried.
            self.is_broken = True
            raise

    def _cut(self) -> None:
        """Save the torn frame and cut it off. Raises NoSpace: the file is as it was."""
        found = self._torn
        assert self._file is not None
        assert found is not None
        names = self._files.list(self._directory)
        end = found.segment.end
        number = sum(name.startswith(f"cut.{end}.") for name in names)
        saved = f"{self._directory}/cut.{end}.{number}"
        self._files.write_bytes(saved, found.torn)
        self._files.sync_directory(self._directory)
        _log.warning(
            "%s: cut off a torn frame at byte %d, saved as %s",
            found.segment.path, found.segment.size, saved,
        )  # fmt: skip
        self._file.truncate(found.segment.size)
        self._sync()
        self._torn = None

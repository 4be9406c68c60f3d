"""Truncates a log, so that no batch reaches a given offset.

    the last kept segment copied, if a snapshot has its file, too
    manifest with the shortened list, an empty active segment and `truncate_to`   <- now it is certain
    segments past the cut removed, the last kept one cut
    epochs and producers set back
    manifest without `truncate_to`

After a crash in between, recovery finishes the truncation that the manifest describes
(`storage/recovery/recovery.py`). The log continues in a new segment, so that it ends exactly at the cut,
even when the cut is in a hole. Every truncation raises the log's generation, so that a cleaning pass
that was planned before it cannot swap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from protocol.wire.numbers import Offset, Position
from storage.batches.scan import CHUNK_BYTES
from storage.batches.walk import walk_batches
from storage.counts.segment_counts import counts_between
from storage.files.errors import CorruptLog, StorageError
from storage.files.files import File, FileSystem
from storage.files.paths import LOG
from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.segment.cleaned_segment import CleanedSegment, discard_staged
from storage.segment.lookup import START, position_before
from storage.segment.segment import Segment


@dataclass(frozen=True, slots=True)
class Cut:
    """The result of a truncation: whole segments, of which the last is cut at `position`."""

    kept: tuple[Segment, ...]
    position: Position
    """The new size of the last kept segment."""
    end_offset: Offset
    """The log's new end: the requested offset, or the base offset of a batch that spans it."""
    record_count: int = 0
    control_count: int = 0
    """Both of the last kept segment after the cut."""

    @property
    def rows(self) -> tuple[SegmentRow, ...]:
        """The manifest's rows of the kept segments after the cut."""
        rows = [segment.full_row() for segment in self.kept]
        if rows:
            end_offset = min(rows[-1].end_offset, self.end_offset)
            rows[-1] = replace(
                rows[-1],
                size=self.position,
                end_offset=end_offset,
                record_count=self.record_count,
                control_count=self.control_count,
            )
        return tuple(rows)


def everything_from(offset: Offset) -> Cut:
    """Returns the cut that removes all segments; the log continues at `offset`."""
    return Cut((), START, offset)


def plan_cut(segments: Sequence[Segment], offset: Offset) -> Cut:
    """Returns the cut after which no batch reaches `offset`."""
    kept = tuple(segment for segment in segments if segment.base_offset < offset)
    if not kept:
        return everything_from(offset)
    position, end_offset = _cut_point(kept[-1], offset)
    if not position:
        kept = kept[:-1]
        position = Position(kept[-1].size) if kept else START
    return Cut(kept, position, end_offset, *_counts_after(kept, position))


def _counts_after(kept: Sequence[Segment], position: Position) -> tuple[int, int]:
    """Returns the counts of the last kept segment after a cut; if what goes is damaged, upper bounds."""
    if not kept:
        return 0, 0
    last = kept[-1]
    try:
        with last.pinned() as file:
            gone = counts_between(file, last.base_offset, position, Position(last.size))
    except CorruptLog:
        return last.record_count, UNKNOWN
    was_counted = last.control_count != UNKNOWN
    controls = last.control_count - gone.controls if was_counted else UNKNOWN
    return last.record_count - gone.records, controls


def _cut_point(segment: Segment, offset: Offset) -> tuple[Position, Offset]:
    with segment.pinned() as file:
        start = position_before(segment, offset)
        for place in walk_batches(file, start, segment.size):
            if place.last_offset >= offset:
                return place.position, min(place.base_offset, offset)
    return Position(segment.size), offset


def copy_shared(
    cut: Cut,
    fs: FileSystem,
    directory: str,
    segment_of: Callable[[SegmentRow], Segment],
    version: int,
) -> tuple[Cut, CleanedSegment | None]:
    """Copy the last kept segment if its file has a second name: a snapshot also has it, and its bytes
    stay. Returns the cut with the copy, and the staged copy, to be renamed once it is certain.

    Args:
        directory: of the log.
        segment_of: returns a segment of the log.
        version: for the copy; no file has it.

    Raises:
        DiskError: the disk failed or is full; there is no copy.
    """
    if not cut.kept or fs.is_plain_file(cut.kept[-1].path(LOG)):
        return cut, None
    row = replace(cut.rows[-1], file_version=version)
    staged = CleanedSegment(row, directory, fs)
    try:
        with cut.kept[-1].pinned() as file:
            _copy(fs, file, row.size, staged.staged_path(LOG))
    except StorageError:
        with suppress(StorageError):
            discard_staged(fs, directory, row.base_offset, version)
        raise
    return replace(cut, kept=(*cut.kept[:-1], segment_of(row))), staged


def _copy(fs: FileSystem, file: File, size: int, path: str) -> None:
    target = fs.open(path, create=True)
    try:
        for start in range(0, size, CHUNK_BYTES):
            target.append((file.read_at(start, min(CHUNK_BYTES, size - start)),))
        target.sync()
    finally:
        target.close()


def make_cut(cut: Cut) -> None:
    """Cut the last kept segment; no manifest lists its bytes past the cut."""
    if not cut.kept:
        return
    last = cut.kept[-1]
    with last.pinned() as file:
        # Even if all its batches stay: its range of offsets may end in a hole that the cut goes through.
        last.cut(
            cut.position,
            min(last.end_offset, cut.end_offset),
            record_count=cut.record_count,
            control_count=cut.control_count,
        )
        file.sync()
        last.seal()
        last.write_index()

"""Where a log has something that is not the last record of its key, noted beside the table of its keys.

    the table is made or extended    notes what loses its place, and what is never sent as it is stored
    passes replace segments          the notes stay: they say too much, but miss nothing
    renewed in slices                the keys of the new segments are compared with the table; for all
                                     other segments the notes are copied

A pass does not say which outranked records it has kept: in spared and damaged segments, under a hold,
within the lag, as older values. So the notes of a new segment are made from its keys alone.

While they are renewed, there are two sets. What loses its place meanwhile is noted in the new one, and
both are asked, so that the table can be extended and used between the slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cleaner.kernel.kernel import DeadOffsets
from cleaner.rules.fence import name_of
from cleaner.rules.step import KeysDiffer
from protocol.wire.errors import CorruptBatch, DecompressionTooLarge
from protocol.wire.numbers import Offset
from storage.files.errors import StorageError
from storage.log.cleaning_view import CleanableSegment, TailView

BLOCK_SHIFT_MIN = 6
"""Notes are by blocks of 64 offsets, and of more where the memory would not be enough."""

OFFSET_MAX = (1 << 63) - 1

UNREADABLE = (StorageError, CorruptBatch, DecompressionTooLarge, KeysDiffer)
"""A segment that is damaged, or that another pass has replaced: its notes stay as they are."""


class DeadNotes:
    """The notes about one log. For one thread at a time."""

    __slots__ = ("_bytes_each", "_earlier", "_segments", "latest", "swaps")

    def __init__(self, tail: TailView, *, bytes_max: int) -> None:
        """
        Args:
            bytes_max: the memory of both sets.
        """
        # Constant after construction.
        self._bytes_each = bytes_max // 2
        # State.
        self.latest = self._empty(tail)
        """Gets all notes."""
        self._earlier: DeadOffsets | None = None
        """The set from before a renewal that has not ended."""
        self._segments: set[tuple[int, int]] = set()
        """The names of the segments of which all offsets below the table's end are noted as they are."""
        self.swaps = tail.swaps
        """The swaps of the log at the latest renewal, whether it has ended or not."""

    def live_until(self, offset: Offset, end_offset: Offset) -> Offset:
        """Returns up to where nothing is noted from an offset on; at most `end_offset`."""
        end = self.latest.next_dead(offset, end_offset)
        return Offset(end if self._earlier is None else self._earlier.next_dead(offset, end))

    def note_segment(self, segment: CleanableSegment) -> None:
        """Remember that a segment is noted from its base offset on."""
        self._segments.add(name_of(segment.row))

    def renew(
        self,
        tail: TailView,
        end_offset: Offset,
        compared: Callable[[CleanableSegment], Iterator[None]],
    ) -> Iterator[None]:
        """Begin to make the notes below the table's end again. Returns the steps.

        Between them the table may be used and extended. If they are not taken to the end, the notes hold
        nevertheless.

        Args:
            tail: all of the log.
            end_offset: the table's end.
            compared: notes in `latest` what a segment has below that end; may raise as
                `SegmentKeys.blocks`.

        Raises:
            CleaningAborted: see `PassMeter`.
        """
        earlier, known = self._begin(tail)
        segments = [each for each in tail.segments if each.row.base_offset < end_offset]
        return self._steps(segments, compared, earlier, known)

    def _begin(self, tail: TailView) -> tuple[DeadOffsets, set[tuple[int, int]]]:
        """Let an empty set get the notes from now on. Returns the earlier one, and the segments of which
        it has notes that were made for them."""
        earlier, known = self.latest, self._segments
        if self._earlier is not None:  # The steps before were not taken to the end.
            earlier, known = self._earlier, set()
            earlier.note_as(self.latest, 0, OFFSET_MAX)
        self._earlier, self.latest, self._segments = earlier, self._empty(tail), set()
        self.swaps = tail.swaps
        return earlier, known

    def _steps(
        self,
        segments: Sequence[CleanableSegment],
        compared: Callable[[CleanableSegment], Iterator[None]],
        earlier: DeadOffsets,
        known: set[tuple[int, int]],
    ) -> Iterator[None]:
        for segment in segments:
            row = segment.row
            if name_of(row) in known:
                self.latest.note_as(earlier, row.base_offset, row.end_offset)
                self.note_segment(segment)
                yield
                continue
            try:
                yield from compared(segment)
                self.note_segment(segment)
            except UNREADABLE:
                self.latest.note_as(earlier, row.base_offset, row.end_offset)
        self._earlier = None

    def _empty(self, tail: TailView) -> DeadOffsets:
        return DeadOffsets(
            start_offset=tail.log_start_offset,
            shift=BLOCK_SHIFT_MIN,
            memory_bytes=self._bytes_each,
        )

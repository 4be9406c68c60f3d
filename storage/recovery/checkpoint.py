"""A snapshot of a log's state, taken on the loop's thread, that a worker makes the recovery point.

    taken       the active segment's row, the end of its index, the producers
    made safe   its bytes, its index entries, the producers, the epochs
    committed   a manifest whose last row has an end: recovery scans from there

Appends, rolls, swaps and truncations continue meanwhile. If one of them rolled or truncated the segment
away, the worker does not commit the checkpoint: that commit has already set a newer recovery point.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.manifest import UNKNOWN, SegmentRow
from storage.formats.segment_index import IndexMark, SegmentIndex
from storage.segment.segment import Segment
from storage.state.producer_state import ProducerStates

CHECKPOINT_BYTES_MIN = 8 << 20
"""Scanning less than this at recovery is faster than writing a checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that a worker needs to commit a recovery point."""

    segment: Segment
    row: SegmentRow
    index: SegmentIndex
    index_end: IndexMark
    producers: ProducerStates


def take_checkpoint(active: Segment, producers: ProducerStates) -> Checkpoint:
    """Take a checkpoint of the log. The caller makes sure that nothing is appended meanwhile."""
    index = active.index()
    return Checkpoint(active, active.full_row(), index, index.mark, producers.copy())


def bytes_behind(recovery_point: SegmentRow, segment: Segment) -> int:
    """Returns the segment's bytes after the recovery point: all if that is in another segment."""
    return segment.size - (recovery_point.size if is_in(recovery_point, segment) else 0)


def is_in(recovery_point: SegmentRow, segment: Segment) -> bool:
    """Returns whether the recovery point, the manifest's last row, lies inside this segment."""
    row = recovery_point
    return row.size != UNKNOWN and (row.base_offset, row.file_version) == (
        segment.base_offset,
        segment.file_version,
    )

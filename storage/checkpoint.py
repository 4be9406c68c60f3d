"""A log at one moment, taken on the loop's thread so that a worker can make it the recovery point.

    taken       the active segment's row, how far its index goes, the producers
    made safe   its bytes, its index entries, the producers, the epochs
    committed   a manifest whose last row has an end: recovery scans from there

Appends, rolls, swaps and truncations go on in between. A segment that was rolled or truncated away by
then is left alone: what its own commit says reaches farther.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.manifest import UNKNOWN, SegmentRow
from storage.producer_state import ProducerStates
from storage.segment import Segment
from storage.segment_index import IndexMark, SegmentIndex

CHECKPOINT_BYTES_MIN = 8 << 20
"""A log that has grown by less is scanned faster than it is written down."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a recovery point needs to know."""

    segment: Segment
    row: SegmentRow
    index: SegmentIndex
    index_end: IndexMark
    producers: ProducerStates


def take_checkpoint(active: Segment, producers: ProducerStates) -> Checkpoint:
    """Take down the log as it is now; nothing may be appended meanwhile."""
    index = active.index()
    return Checkpoint(active, active.full_row(), index, index.mark, producers.copy())


def bytes_behind(recovery_point: SegmentRow, segment: Segment) -> int:
    """How much of a segment lies behind the recovery point; all of it if that is in another one."""
    return segment.size - (recovery_point.size if is_in(recovery_point, segment) else 0)


def is_in(recovery_point: SegmentRow, segment: Segment) -> bool:
    """Whether the manifest's last row is a recovery point inside this segment."""
    row = recovery_point
    return row.size != UNKNOWN and (row.base_offset, row.file_version) == (
        segment.base_offset,
        segment.file_version,
    )

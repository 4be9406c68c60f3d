"""When a coordinator's partition gets a new checkpoint, and what is known of those that it has.

    dirty     the log after the checkpoint's end or, if that is later, after the clean offset: below it,
              the cleaner has left little more than the state, so a load gains nothing there. If a
              cleaning pass has reached past the checkpoint's end, the checkpoint does not count
    due       a load of the dirty part is estimated to take longer than `replog.replay.ms`, by the rate
              of the last load, and it has at least `replog.snapshot.u` of the bytes before it, so that
              a large state is not written over and over

`docs/design/coordinator-checkpoints.md` has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.checkpoints.making import MadeCheckpoint
from protocol.wire.numbers import Offset
from replog.trigger import CompactionSettings
from server.coordination.state_loading import LoadReport
from storage.log.log import PartitionLog
from storage.segment.segment import Segment
from storage.threads import any_thread, loop_thread

ASSUMED_BYTES_PER_SECOND = 100e6
"""The rate of loads until one was measured."""
MEASURED_BYTES_MIN = 1 << 20
"""Loads of fewer bytes are too short to measure."""
STOP_BYTES_MIN = 1 << 20
"""A clean stop does not make a checkpoint for fewer bytes than these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """What is known of a partition's checkpoint."""

    end_offset: Offset
    size: int
    seconds: float | None = None
    """How long it took to make; None if an earlier run made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyPart:
    """The part of a log that a checkpoint made now would save the next load from reading."""

    bytes: int
    before_bytes: int
    """The bytes that a load reads before it: of the checkpoint, or of the clean part of the log."""


@loop_thread
class TopicCheckpoints:
    """What is known of the checkpoints of one topic's partitions. Its `CoordinatorTopic` owns it."""

    __slots__ = ("_states", "bytes_per_second", "has_commits")

    def __init__(self, *, has_commits: bool) -> None:
        # Constant after construction
        self.has_commits = has_commits
        """Whether the records are committed offsets (see `LiveRecords`)."""
        # State
        self.bytes_per_second = ASSUMED_BYTES_PER_SECOND
        """The rate of the last load of some size."""
        self._states: dict[int, CheckpointState] = {}

    def loaded(self, partition: int, report: LoadReport) -> None:
        """Note how a partition was loaded."""
        if report.bytes_read >= MEASURED_BYTES_MIN and report.seconds > 0:
            self.bytes_per_second = report.bytes_read / report.seconds
        self._states.pop(partition, None)
        if report.checkpoint is not None:
            used = report.checkpoint
            self._states[partition] = CheckpointState(end_offset=used.end_offset, size=used.size)

    def made(self, partition: int, made: MadeCheckpoint, seconds: float) -> None:
        """Note a new checkpoint."""
        self._states[partition] = CheckpointState(
            end_offset=made.end_offset, size=made.size, seconds=seconds
        )

    @any_thread
    def states(self) -> dict[int, CheckpointState]:
        """Returns what is known of each checkpoint, by partition."""
        return dict(self._states)

    @any_thread
    def dirty_part(self, log: PartitionLog) -> DirtyPart:
        """Returns the part of a log that a new checkpoint would cover."""
        return dirty_part(
            [row_of(segment) for segment in log.segments],
            self._states.get(log.topic_partition.partition),
            clean_offset=log.clean_offset,
        )

    @any_thread
    def replay_ms(self, log: PartitionLog) -> float:
        """Returns how long a load of that part is estimated to take."""
        return self.dirty_part(log).bytes / self.bytes_per_second * 1000

    def is_due(self, log: PartitionLog, settings: CompactionSettings) -> bool:
        """Returns whether a log that was loaded should get a checkpoint now."""
        dirty = self.dirty_part(log)
        replay_ms = dirty.bytes / self.bytes_per_second * 1000
        return replay_ms > settings.replay_ms and is_large(dirty, settings)

    def is_due_at_stop(self, log: PartitionLog, settings: CompactionSettings) -> bool:
        """Returns whether a log that was loaded should get a checkpoint before the broker stops."""
        dirty = self.dirty_part(log)
        return dirty.bytes >= STOP_BYTES_MIN and is_large(dirty, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """What the estimate looks at in a segment."""

    base_offset: int
    end_offset: int
    size: int
    is_cleaned: bool


def row_of(segment: Segment) -> SegmentRange:
    """Returns what the estimate looks at in a segment."""
    return SegmentRange(
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        size=segment.size,
        is_cleaned=segment.is_cleaned,
    )


def dirty_part(
    segments: Sequence[SegmentRange], state: CheckpointState | None, *, clean_offset: int
) -> DirtyPart:
    """Returns the dirty part of a log with these segments. Pure."""
    cleaned_to = max((each.end_offset for each in segments if each.is_cleaned), default=0)
    counts = state is not None and state.end_offset >= cleaned_to
    start = max(clean_offset, state.end_offset if counts and state is not None else 0)
    dirty = sum(bytes_from(each, start) for each in segments)
    if counts and state is not None and start == state.end_offset:
        return DirtyPart(bytes=dirty, before_bytes=state.size)
    return DirtyPart(bytes=dirty, before_bytes=sum(each.size for each in segments) - dirty)


def bytes_from(segment: SegmentRange, offset: int) -> int:
    """Returns a segment's bytes from an offset on, by the share of its offsets. Pure."""
    count = segment.end_offset - segment.base_offset
    if offset <= segment.base_offset or count <= 0:
        return segment.size
    return segment.size * max(segment.end_offset - offset, 0) // count


def is_large(dirty: DirtyPart, settings: CompactionSettings) -> bool:
    """Returns whether a dirty part is worth writing what comes before it again. Pure."""
    return dirty.bytes > 0 and dirty.bytes >= settings.u * dirty.before_bytes

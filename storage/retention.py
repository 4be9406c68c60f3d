"""Which of a log's oldest segments go, and why. Pure: `PartitionLog.retain` does it.

    |-- goes --|-- goes --|-- stays --|-- stays --|-- active --|
     log start  too much   younger
     passed it  or too old than retention.ms

Segments go from the start on, up to the first that has no reason to, and never one that reaches past
the high watermark: the log start must not pass it. The active segment goes too if everything in it
is too old or too much; it has to be rolled first, as the log needs one to append to.

Source: Apache Kafka, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.log_config import LogConfig
from storage.manifest import UNKNOWN


class DeletionReason(enum.Enum):
    """Why a segment goes; each value is a label of `kompakt_segments_deleted_total`."""

    LOG_START = "log_start"
    """Everything in it is below the log start offset, which DeleteRecords has moved."""
    SIZE = "size"
    """What is left without it is still at least retention.bytes."""
    TIME = "time"
    """It is older than retention.ms."""


class Retained(Protocol):
    """What the decision reads of a segment, or of its row in the manifest."""

    @property
    def end_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def last_append_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Retention:
    """What goes: the first `len(reasons)` segments, and where the log starts then."""

    reasons: tuple[DeletionReason, ...]
    log_start_offset: int


def decide_retention(
    segments: Sequence[Retained],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> Retention:
    """Which segments go at `now_ms`.

    Args:
        segments: all in offset order; the last one is active, and tells its end and size so far.
    """
    size_left = sum(segment.size for segment in segments)
    reasons: list[DeletionReason] = []
    for segment in segments:
        is_active = segment is segments[-1]
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            break
        size_left -= segment.size
        if segment.end_offset <= log_start_offset and not is_active:
            reasons.append(DeletionReason.LOG_START)
        elif config.is_deleted and 0 <= config.retention_bytes <= size_left:
            reasons.append(DeletionReason.SIZE)
        elif config.is_deleted and 0 <= config.retention_ms < _age_ms(segment, now_ms):
            reasons.append(DeletionReason.TIME)
        else:
            break
    start_offset = segments[len(reasons) - 1].end_offset if reasons else log_start_offset
    return Retention(tuple(reasons), max(start_offset, log_start_offset))


def _age_ms(segment: Retained, now_ms: int) -> int:
    """How long ago the segment's youngest record was written, by its timestamp.

    A timestamp may lie in the future, by a producer's mistake; the wall time of the last append
    then bounds it. Without either the segment's making counts, and without that it has no age.
    """
    times = [at for at in (segment.max_timestamp, segment.last_append_ms) if at != UNKNOWN]
    if not times:
        times = [segment.created_ms if segment.created_ms != UNKNOWN else now_ms]
    return now_ms - min(times)

"""Decides which of a log's oldest segments retention deletes. Pure: `PartitionLog.retain` deletes them.

    |-- goes --|-- goes --|-- stays --|-- stays --|-- active --|
     log start  too much   younger
     passed it  or too old than retention.ms

Segments go from the start on, up to the first one without a reason, and never one that reaches past the
high watermark, because the log start must not pass it. The active segment goes too if all of it is too
old or too much; it has to be rolled first, because the log needs a segment to append to.

Source: Apache Kafka, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.wire.numbers import Offset
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN


class DeletionReason(enum.Enum):
    """Why a segment is deleted; the values are labels of `kompakt_segments_deleted_total`."""

    LOG_START = "log_start"
    """All of it is below the log start offset, which DeleteRecords has moved."""
    SIZE = "size"
    """The log without it still has at least retention.bytes."""
    TIME = "time"
    """It is older than retention.ms."""


class Retained(Protocol):
    """The fields of a segment, or of its row in the manifest, that the decision reads."""

    @property
    def end_offset(self) -> Offset: ...
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
    """The decision: the first `len(reasons)` segments go, and the log then starts at the offset."""

    reasons: tuple[DeletionReason, ...]
    log_start_offset: Offset


def decide_retention(
    segments: Sequence[Retained],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: Offset,
    high_watermark: Offset,
) -> Retention:
    """Returns which segments retention deletes at `now_ms`.

    Args:
        segments: all segments in offset order; the last one is active, with its current end and size.
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
    """Returns the age of the segment's youngest record, by its timestamp.

    A producer's mistake may put a timestamp in the future, so the wall time of the last append bounds
    it. Without either, the creation time of the segment counts; without that, the age is 0.
    """
    times = [at for at in (segment.max_timestamp, segment.last_append_ms) if at != UNKNOWN]
    if not times:
        times = [segment.created_ms if segment.created_ms != UNKNOWN else now_ms]
    return now_ms - min(times)

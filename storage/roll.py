"""When the active segment ends and a new one begins. Pure: `PartitionLog.roll` does it.

An empty segment never rolls, but for a batch whose offsets it could not say. Ages count from the wall
time of the first append, never from the records' timestamps.

Source: Apache Kafka, LogSegment.shouldRoll.
"""

from __future__ import annotations

from storage.config_property import LONG_MAX
from storage.log_config import LogConfig
from storage.manifest import UNKNOWN
from storage.segment import Segment

OFFSET_SPAN_MAX = (1 << 31) - 1
"""The indexes have offsets relative to the segment's first one, in 32 bits."""


def must_roll(
    active: Segment, config: LogConfig, *, batch_bytes: int, last_offset: int, is_old: bool
) -> bool:
    """Whether a batch that ends at `last_offset` belongs into a new segment."""
    is_too_far = last_offset - active.base_offset > OFFSET_SPAN_MAX
    if active.size == 0:
        return is_too_far
    return (
        is_too_far
        or is_old
        or active.size + batch_bytes > config.segment_bytes
        or active.index_bytes >= config.segment_index_bytes
    )


def is_old(active: Segment, config: LogConfig, *, jitter: float, now_ms: int) -> bool:
    """Whether the segment's time is over.

    Args:
        jitter: the part of segment.jitter.ms, 0 to 1, that is taken off segment.ms.
    """
    if active.size == 0 or active.first_append_ms == UNKNOWN:
        return False
    age_max = config.segment_ms - int(jitter * config.segment_jitter_ms)
    if config.is_compacted:
        age_max = min(age_max, config.max_compaction_lag_ms)
    return age_max < LONG_MAX and now_ms - active.first_append_ms >= age_max

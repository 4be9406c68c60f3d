"""Decides when the active segment rolls. Pure: `PartitionLog.roll` performs the roll.

An empty segment never rolls, unless its indexes cannot express the offsets of the next batch. The age of
a segment counts from the wall time of its first append, never from the timestamps of records.

Source: Apache Kafka, LogSegment.shouldRoll.
"""

from __future__ import annotations

from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN
from storage.segment.segment import Segment

OFFSET_SPAN_MAX = (1 << 31) - 1
"""The largest offset, relative to the segment's base offset, that fits the 32 bits of an index entry."""


def must_roll(
    active: Segment,
    config: LogConfig,
    *,
    batch_bytes: int,
    last_offset: int,
    jitter: float,
    now_ms: int,
) -> bool:
    """Returns whether a batch that ends at `last_offset` must go into a new segment."""
    is_too_far = last_offset - active.base_offset > OFFSET_SPAN_MAX
    if is_too_far or active.size == 0:
        return is_too_far
    return (
        active.size + batch_bytes > config.segment_bytes
        or active.index_bytes >= config.segment_index_bytes
        or is_old(active, config, jitter=jitter, now_ms=now_ms)
    )


def is_old(active: Segment, config: LogConfig, *, jitter: float, now_ms: int) -> bool:
    """Returns whether the segment has reached the age at which it must roll.

    Args:
        jitter: the fraction of segment.jitter.ms, 0 to 1, that is subtracted from segment.ms.
    """
    if active.size == 0 or active.first_append_ms == UNKNOWN:
        return False
    age = now_ms - active.first_append_ms
    if age < config.segment_ms - config.segment_jitter_ms and age < config.max_compaction_lag_ms:
        # Every append gets here, and most segments are too young under any policy and jitter.
        return False
    age_max = _age_max(config, jitter)
    return age_max < LONG_MAX and age >= age_max


def run_bytes_max(config: LogConfig, *, jitter: float) -> int:
    """Returns how large a segment may become by a run of batches that are appended at one moment.

    0 if it is old as soon as it has a batch: then each batch gets a segment of its own.
    """
    return config.segment_bytes if _age_max(config, jitter) > 0 else 0


def _age_max(config: LogConfig, jitter: float) -> int:
    age_max = config.segment_ms - int(jitter * config.segment_jitter_ms)
    return min(age_max, config.max_compaction_lag_ms) if config.is_compacted else age_max

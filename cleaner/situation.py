"""What an explanation goes by and what it consists of: plain values, and how a log's are gathered."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleaner.pick import Assessment
from cleaner.pool_status import PoolStatus
from cleaner.quarantine import Quarantined
from protocol.error_codes import ErrorCode
from protocol.record_batch import read_header
from storage.config_property import LONG_MAX
from storage.log import PartitionLog
from storage.log_config import LogConfig
from storage.manifest import UNKNOWN
from storage.reader import Isolation
from storage.segment import Segment
from storage.topic_partition import TopicPartition

Number = int | float | str | None


class Obstacle(enum.Enum):
    """What may keep a log from being compacted."""

    POLICY = "policy"
    PAUSED = "paused"
    DISK_FULL = "disk_full"
    QUARANTINED = "quarantined"
    THROTTLED = "throttled"
    WAITING = "waiting"
    OPEN_TRANSACTION = "open_transaction"
    HIGH_WATERMARK = "high_watermark"
    MIN_LAG = "minimum_lag"
    MIN_LAG_BYTES = "minimum_lag_bytes"
    ACTIVE_SEGMENT = "active_segment"
    RATIO = "ratio"
    NOTHING_DIRTY = "nothing_dirty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One obstacle, in words and numbers."""

    obstacle: Obstacle
    text: str
    remedy: str
    """The command or the setting that changes it."""
    numbers: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinningTransaction:
    """A transaction that holds the cleaner back."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int
    """Wall time of its first batch, by the producer's clock or the broker's."""
    last_append_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that an explanation goes by, at one moment."""

    topic_partition: TopicPartition
    config: LogConfig
    assessment: Assessment
    now_ms: int
    log_end_offset: int
    high_watermark: int
    active_base_offset: int
    active_bytes: int
    rolls_at_ms: int
    """When the active segment rolls by time, at the latest; LONG_MAX if it has no record."""
    old_enough_ms: int
    """When min.compaction.lag.ms is over for the segment at the first uncleanable offset, if there is
    one; LONG_MAX if not."""
    transactions: tuple[PinningTransaction, ...]
    pool: PoolStatus
    paused: str | None
    """Which pause holds the log: everything, topic or partition."""
    quarantined: Quarantined | None
    """What the log rests for, if it does now."""
    retry_in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a log is, or is not, being compacted."""

    topic_partition: TopicPartition
    is_running: bool
    is_eligible: bool
    """Whether it is dirty enough, and may be cleaned as far as the log itself goes."""
    text: str
    """One sentence that says how it stands."""
    findings: tuple[Finding, ...]
    """What stands in the way: the one that decides first."""


def situation_of(
    log: PartitionLog,
    assessment: Assessment,
    pool: PoolStatus,
    transactions: Sequence[PinningTransaction],
    *,
    now_ms: int,
    monotonic: float,
) -> Situation:
    """How a log stands now; the loop's thread makes it, so that nothing is appended meanwhile."""
    partition, active = log.topic_partition, log.segments[-1]
    scope = pool.paused.scope_of(log.topic_id, partition.partition)
    resting = pool.quarantined_entry(partition)
    rest = 0.0 if resting is None else resting.retry_at - monotonic
    return Situation(
        topic_partition=partition,
        config=log.config,
        assessment=assessment,
        now_ms=now_ms,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        active_base_offset=active.base_offset,
        active_bytes=active.size,
        rolls_at_ms=min(assessment.roll_ms, _rolls_at_ms(active, log.config)),
        old_enough_ms=_old_enough_ms(log, assessment.bounds.first_uncleanable_offset),
        transactions=tuple(transactions),
        pool=pool,
        paused=None if scope is None else scope.value,
        quarantined=resting if rest > 0 else None,
        retry_in_seconds=max(rest, 0.0),
    )


def pinning_transactions(log: PartitionLog) -> tuple[PinningTransaction, ...]:
    """The transactions that hold passes over a log back, the first one first. A worker thread.

    Raises:
        StorageError: the batch that one begins with cannot be read.
    """
    return tuple(
        PinningTransaction(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            first_offset=each.first_offset,
            since_ms=_timestamp_at(log, each.first_offset, each.last_append_ms),
            last_append_ms=each.last_append_ms,
        )
        for each in log.producers.open_transactions()
    )


def _timestamp_at(log: PartitionLog, offset: int, otherwise_ms: int) -> int:
    """The time of the batch at an offset; `otherwise_ms` where it is not readable any more, or yet."""
    result = log.read(
        offset, max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    if isinstance(result, ErrorCode) or not result.regions:
        return otherwise_ms
    (region,) = result.regions
    try:
        return read_header(region.read_bytes()).max_timestamp
    finally:
        region.release()


def _rolls_at_ms(active: Segment, config: LogConfig) -> int:
    """When segment.ms is over for the active segment; LONG_MAX if it has no record."""
    if active.size == 0 or active.first_append_ms == UNKNOWN:
        return LONG_MAX
    return active.first_append_ms + config.segment_ms


def _old_enough_ms(log: PartitionLog, offset: int) -> int:
    segment = next((each for each in log.segments if each.base_offset == offset), None)
    if segment is None:
        return LONG_MAX
    appended_ms = segment.last_append_ms
    appended_ms = segment.created_ms if appended_ms == UNKNOWN else appended_ms
    return appended_ms + log.config.min_compaction_lag_ms

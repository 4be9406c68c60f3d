"""Input and output of `explain`: plain values, and the functions that collect them from a log."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleaner.pacing.quarantine import Quarantined
from cleaner.pool.status import PoolStatus
from cleaner.rules.pick import Assessment
from protocol.records.batch_header import read_header
from protocol.wire.error_codes import ErrorCode
from protocol.wire.errors import ProtocolError
from protocol.wire.numbers import Offset
from storage.formats.config_property import LONG_MAX
from storage.formats.log_config import LogConfig
from storage.formats.manifest import UNKNOWN
from storage.formats.topic_partition import TopicPartition
from storage.log.log import PartitionLog
from storage.segment.reader import Isolation
from storage.segment.segment import Segment

Number = int | float | str | None


class Obstacle(enum.Enum):
    """The reasons that may keep a log from being compacted."""

    POLICY = "policy"
    PAUSED = "paused"
    DISK_FULL = "disk_full"
    QUARANTINED = "quarantined"
    STALLED = "stalled"
    THROTTLED = "throttled"
    WAITING = "waiting"
    OPEN_TRANSACTION = "open_transaction"
    HIGH_WATERMARK = "high_watermark"
    MIN_LAG = "minimum_lag"
    MIN_LAG_BYTES = "minimum_lag_bytes"
    ACTIVE_SEGMENT = "active_segment"
    RATIO = "ratio"
    WINDOW = "window"
    NOTHING_DIRTY = "nothing_dirty"
    HELD = "held"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One obstacle, in words and numbers."""

    obstacle: Obstacle
    text: str
    remedy: str
    """The command or setting that removes the obstacle."""
    numbers: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinningTransaction:
    """A transaction that holds the cleaner back."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int
    """Timestamp of its first batch, by the producer's or the broker's clock."""
    last_append_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state that an explanation is made from, at one moment."""

    topic_partition: TopicPartition
    config: LogConfig
    assessment: Assessment
    now_ms: int
    log_end_offset: int
    high_watermark: int
    active_base_offset: int
    active_bytes: int
    rolls_at_ms: int
    """When the active segment rolls by time; LONG_MAX if it has no record."""
    old_enough_ms: int
    """When the segment at the first uncleanable offset is older than min.compaction.lag.ms; LONG_MAX if
    there is no such segment."""
    transactions: tuple[PinningTransaction, ...]
    pool: PoolStatus
    paused: str | None
    """Which pause applies to the log: everything, topic or partition."""
    quarantined: Quarantined | None
    """The quarantine entry, if the log rests now."""
    retry_in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a log is, or is not, being compacted."""

    topic_partition: TopicPartition
    is_running: bool
    is_eligible: bool
    """Whether the log is dirty enough and its own state allows a pass."""
    text: str
    """One sentence that sums it up."""
    findings: tuple[Finding, ...]
    """The obstacles, the deciding one first."""


def situation_of(
    log: PartitionLog,
    assessment: Assessment,
    pool: PoolStatus,
    transactions: Sequence[PinningTransaction],
    *,
    now_ms: int,
    monotonic: float,
) -> Situation:
    """Returns a log's current state; call it on the loop's thread, where no append can intervene."""
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
    """Returns the open transactions of a log, the first one first. For a worker thread.

    Raises:
        StorageError: the first batch of one cannot be read.
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


def _timestamp_at(log: PartitionLog, offset: Offset, otherwise_ms: int) -> int:
    """Returns the timestamp of the batch at an offset; `otherwise_ms` if it is not readable."""
    result = log.reader.read(
        offset, max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
    )
    if isinstance(result, ErrorCode) or not result.regions:
        return otherwise_ms
    (region,) = result.regions
    try:
        return read_header(region.read_bytes()).max_timestamp
    except ProtocolError:
        return otherwise_ms
    finally:
        region.release()


def _rolls_at_ms(active: Segment, config: LogConfig) -> int:
    """Returns when the active segment rolls by segment.ms; LONG_MAX if it has no record."""
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

"""What a scrape asks of the broker: plain values, read at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Backlog(Protocol):
    """The part of a `cleaner.backlog.Backlog` that is shown."""

    @property
    def dirty_bytes(self) -> int: ...
    @property
    def cleanable_bytes(self) -> int: ...
    @property
    def dirty_ratio(self) -> float: ...
    @property
    def offset_lag(self) -> int: ...
    @property
    def tombstones_count(self) -> int: ...
    @property
    def key_sidecar_bytes(self) -> int: ...
    @property
    def horizon_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition as a scrape shows it."""

    topic: str
    partition: int
    log_directory: str
    """The path of the log directory that holds it."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments_count: int
    clean_offset: int | None = None
    """None where the topic is not compacted."""
    backlog: Backlog | None = None
    """None where the topic is not compacted."""
    overdue_ms: int = 0
    """By how much max.compaction.lag.ms has been missed."""
    is_internal: bool = False
    """Whether it belongs to a topic that the broker made for itself."""

    @property
    def is_unused(self) -> bool:
        """Whether it is one of the many that the broker made ahead and has never written to."""
        return self.is_internal and self.log_end_offset == 0


@dataclass(frozen=True, slots=True)
class GroupTopicFacts:
    """What a group has committed for one topic."""

    topic: str
    offsets: list[tuple[int, int, int | None]]
    """Partition, offset, and how many records behind the high watermark that is; None where the
    partition is not served."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group as a scrape shows it."""

    group_id: str
    state: str
    """Kafka's word for it."""
    members_count: int
    protocol: str
    """classic or consumer."""
    topics: Iterable[GroupTopicFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """The transactions that the broker coordinates, as a scrape shows them."""

    ids_by_state: Mapping[str, int] = field(default_factory=dict)
    """Transactional ids by Kafka's word for their state."""
    oldest_open_ms: int = 0
    """How long the one has been open that was opened first; 0: none is."""
    ended_by_outcome: Mapping[str, int] = field(default_factory=dict)
    """Since the start: commit, abort."""
    timed_out: int = 0
    """Of the aborted ones, those that were open for longer than they may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStall:
    """A time in which the event loop served nobody, and what held it."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """How much of it the loop's thread had the processor; the rest it waited, for a disk perhaps."""
    api: str = "other"
    """The API of the request that held it; "other" if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """How the event loop spends its time."""

    busy_seconds: float = 0.0
    """The processor time of its thread since it started."""
    idle_share: float = 1.0
    """The part of the last minute in which it did not use the processor."""
    longest_stall: LoopStall = LoopStall()
    """Of the last one to two minutes."""
    stalls_by_api: Mapping[str, int] = field(default_factory=dict)
    """How many were long enough to be logged, since the start."""


class RecoveryFacts(Protocol):
    """What the recovery of logs has done since the start."""

    @property
    def logs_recovered_total(self) -> int: ...
    @property
    def bytes_scanned_total(self) -> int: ...
    @property
    def bytes_cut_total(self) -> int: ...
    @property
    def files_cut_total(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The broker as a whole, as a scrape shows it."""

    version: str
    is_ready: bool
    partitions_by_topic: dict[str, int]
    partitions_offline: int
    log_directories: tuple[str, ...]
    """The paths of those in service."""
    directories_offline: int
    recovery: RecoveryFacts
    dead_cleaner_workers: int = 0
    coordinator_partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each coordinator's topic how many are loading, active and failed."""
    transactions: TransactionFacts = TransactionFacts()
    loop: LoopFacts = LoopFacts()
    node_id: int = 0
    address: str = ""
    """host:port that clients are told, of the first listener."""

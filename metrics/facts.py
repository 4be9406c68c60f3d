"""Values that a scrape reads from the broker, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Backlog(Protocol):
    """The exported part of a `cleaner.pool.backlog.Backlog`."""

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
    def tombstone_bytes(self) -> int | None: ...
    @property
    def tombstones_due_ms(self) -> int | None: ...
    @property
    def key_sidecar_bytes(self) -> int: ...
    @property
    def horizon_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition's values for a scrape."""

    topic: str
    partition: int
    log_directory: str
    """The path of its log directory."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments_count: int
    clean_offset: int | None = None
    """None if the topic is not compacted."""
    backlog: Backlog | None = None
    """None if the topic is not compacted."""
    overdue_ms: int = 0
    """The time by which its oldest dirty record has outlived max.compaction.lag.ms."""
    reclaimable_bytes: int | None = None
    """The bytes that a pass would free; None if its keys were not counted."""
    reclaimable_error_bytes: int | None = None
    """The standard error of that."""
    records: int | None = None
    """About how many records it has; None if the topic is not compacted."""
    kept_bytes: int = 0
    """The bytes of replaced segments that are kept for undos of passes."""
    is_internal: bool = False
    """Whether its topic is an internal one of the broker."""

    @property
    def is_unused(self) -> bool:
        """Whether it belongs to an internal topic and was never written to."""
        return self.is_internal and self.log_end_offset == 0


class GroupOffset(NamedTuple):
    """A group's committed offset for a partition."""

    partition: int
    offset: int
    lag: int | None
    """Offsets to the high watermark; None if the partition is not served."""
    record_lag: int | None = None
    """About how many records they have; None as `lag`."""


@dataclass(frozen=True, slots=True)
class GroupTopicFacts:
    """A group's committed offsets for one topic."""

    topic: str
    offsets: Sequence[GroupOffset]


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One consumer group's values for a scrape."""

    group_id: str
    state: str
    """The group's state in Kafka's words."""
    members_count: int
    protocol: str
    """`classic` or `consumer`."""
    topics: Iterable[GroupTopicFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """Values for a scrape about the transactions that the broker coordinates."""

    ids_by_state: Mapping[str, int] = field(default_factory=dict)
    """Numbers of transactional ids by state, in Kafka's words."""
    oldest_open_ms: int = 0
    """Age of the oldest open transaction; 0 if none is open."""
    ended_by_outcome: Mapping[str, int] = field(default_factory=dict)
    """Ended transactions since the start, by outcome: commit, abort."""
    timed_out: int = 0
    """Transactions aborted since the start because they exceeded their timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStall:
    """A stall of the event loop, and the request that held it."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Processor time of the loop's thread in the stall; the rest it waited, for a disk perhaps."""
    api: str = "other"
    """The API of the request that held the loop; "other" if no request did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """Values for a scrape about the event loop's time."""

    busy_seconds: float = 0.0
    """Processor time of its thread since the start."""
    idle_share: float = 1.0
    """Fraction of the last minute in which it did not use the processor."""
    longest_stall: LoopStall = LoopStall()
    """The longest stall of the last one to two minutes."""
    stalls_by_api: Mapping[str, int] = field(default_factory=dict)
    """Numbers of logged stalls since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSessionFacts:
    """Values for a scrape about fetch sessions."""

    sessions: int = 0
    partitions: int = 0
    """The sum over the sessions."""
    evictions_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLookupFacts:
    """Values for a scrape about lookups of keys."""

    tables: int = 0
    table_bytes: int = 0
    spilled_bytes: int = 0
    """What they have on the disk."""
    lookups_total: int = 0
    """Keys that were looked up in a partition."""
    made_total: int = 0
    """Tables that were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFacts:
    """Values for a scrape about reads of views."""

    stored_total: int = 0
    """Reads whose records were sent as they are stored."""
    filtered_total: int = 0
    scanned_bytes_total: int = 0
    """Bytes that were read for the filtered ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """Values for a scrape about snapshots of topics, as last counted."""

    count: int = 0
    """Those that are complete."""
    size_bytes: int = 0
    """The size of the segments in them; a segment in two counts twice."""
    pinned_bytes: int = 0
    """The bytes of files that only snapshots hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFacts:
    """Values for a scrape about the quotas of clients."""

    entities_count: int = 0
    uses: Mapping[str, Sequence[tuple[str, str, float]]] = field(default_factory=dict)
    """By quota, of the clients that were active last: user, client id, and what they use."""


class ReplogFacts(Protocol):
    """Values for a scrape about a log that snapshots bound, and its snapshots."""

    @property
    def disk_bytes(self) -> int: ...
    @property
    def bound_bytes(self) -> float: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def snapshot_bytes(self) -> int: ...
    @property
    def replay_seconds(self) -> float: ...
    @property
    def snapshot_seconds(self) -> float | None: ...
    @property
    def u(self) -> float: ...


class RecoveryFacts(Protocol):
    """Counts of the recovery of logs since the start."""

    @property
    def logs_recovered_total(self) -> int: ...
    @property
    def bytes_scanned_total(self) -> int: ...
    @property
    def bytes_cut_total(self) -> int: ...
    @property
    def files_cut_total(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """Values for a scrape about one partition of a coordinator's topic."""

    replay_seconds: float
    """Estimated load of what a new checkpoint would cover."""
    size: int | None = None
    """None without a checkpoint, as `end_offset`."""
    end_offset: int | None = None
    seconds: float | None = None
    """How long it took to make; None if an earlier run made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTopicFacts:
    """A follower's copies of one coordinator's topic."""

    name: str
    lag_offsets: int
    seen_seconds_ago: float
    checkpoints: int
    """Checkpoints that it has downloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFacts:
    """One follower of the metadata's log and of the coordinators' topics."""

    id: str
    lag_entries: int
    seen_seconds_ago: float
    installs: int
    """Snapshots that it has downloaded."""
    copies: Sequence[FollowedTopicFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """One link to another cluster."""

    is_answered: bool
    """Whether its source has answered the last request."""
    partitions_by_state: Mapping[str, int]
    lag_offsets: Mapping[str, int]
    """By topic, the sum over its partitions."""
    lag_seconds: Mapping[str, float]
    """By topic, since when its slowest partition lacks something that the source had."""
    copied_bytes_total: int
    failed_attempts_total: int
    cut_offsets_total: int
    skipped_offsets_total: int
    resyncs_started_total: int
    resyncs_completed_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureFacts:
    """The erasures of keys."""

    by_state: Mapping[str, int]
    at_risk: int
    """Those whose deadline may pass before they are complete."""
    overdue: int
    """Those whose deadline has passed."""
    next_deadline_seconds: float | None
    """Seconds to the next deadline of an erasure that is not final; negative once it has passed. None:
    there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """Values for a scrape about the whole broker."""

    version: str
    is_ready: bool
    is_fenced: bool = False
    """Whether another broker has taken over."""
    partitions_by_topic: dict[str, int]
    partitions_offline: int
    log_directories: tuple[str, ...]
    """The paths of the log directories in service."""
    directories_offline: int
    recovery: RecoveryFacts
    dead_cleaner_workers: int = 0
    stalled_cleaner_tasks: int = 0
    cleaner_ledger_breaks: int = 0
    coordinator_partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By coordinator's topic and state (loading, active, failed), the number of partitions."""
    slots_invalidated: int = 0
    """Committed offsets that no longer hold tombstones, since the start."""
    transactions: TransactionFacts = TransactionFacts()
    loop: LoopFacts = LoopFacts()
    quotas: QuotaFacts = QuotaFacts()
    fetch_sessions: FetchSessionFacts = FetchSessionFacts()
    key_lookups: KeyLookupFacts = KeyLookupFacts()
    views: ViewFacts = ViewFacts()
    snapshots: SnapshotFacts = SnapshotFacts()
    replogs: Mapping[str, ReplogFacts] = field(default_factory=dict)
    """By the name of its state machine."""
    followers: Sequence[FollowerFacts] = ()
    links: Mapping[str, LinkFacts] = field(default_factory=dict)
    """By its name."""
    checkpoints: Mapping[tuple[str, str], CheckpointFacts] = field(default_factory=dict)
    """By coordinator's topic and partition; only those with a checkpoint or something to load."""
    certificates_expire_seconds: Mapping[str, float] = field(default_factory=dict)
    """By listener with TLS, the seconds until its certificate expires; negative once it has."""
    erasures: ErasureFacts | None = None
    """None if the broker does not clean."""
    node_id: int = 0
    address: str = ""
    """The advertised host:port of the first listener."""

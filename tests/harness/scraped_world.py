"""Probes with a scraper: a scrape must show what the probes recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from cleaner.pacing.quarantine import Quarantined
from metrics.cleaner_probe import CleanerCounts
from metrics.collector import BrokerCollector, Scraper
from metrics.facts import (
    BrokerFacts,
    CheckpointFacts,
    ErasureFacts,
    FetchSessionFacts,
    FollowedTopicFacts,
    FollowerFacts,
    GroupFacts,
    LinkFacts,
    LoopFacts,
    LoopStall,
    PartitionFacts,
    QuotaFacts,
    SnapshotFacts,
    TransactionFacts,
)
from metrics.server_probe import ServerProbe
from replog.compactor import CompactionFacts
from server.coordination.coordinator_topic import OFFSETS_TOPIC
from storage.formats.topic_partition import TopicPartition
from storage.recovery.progress import RecoveryProgress

REPLOG = CompactionFacts(
    disk_bytes=3_000,
    bound_bytes=9_000.0,
    log_bytes=2_000,
    snapshot_bytes=1_000,
    replay_seconds=0.02,
    snapshot_seconds=0.5,
    u=0.1,
)

CHECKPOINT = CheckpointFacts(replay_seconds=0.03, size=700, end_offset=90, seconds=0.25)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The part of a log that waits for the cleaner."""

    dirty_bytes: int = 0
    cleanable_bytes: int = 0
    dirty_ratio: float = 0.0
    offset_lag: int = 0
    tombstones_count: int = 0
    tombstone_bytes: int | None = 0
    tombstones_due_ms: int | None = None
    key_sidecar_bytes: int = 0
    horizon_ms: int | None = None


@dataclass(frozen=True)
class Report:
    """A completed pass."""

    topic: str = "c"
    partition: int = 0
    bytes_before: int = 1000
    bytes_after: int = 400
    records_by_verdict: dict[str, int] = field(
        default_factory=lambda: {"kept_latest": 4, "dropped_superseded": 6}
    )
    outranked: int = 2
    unkeyed_moved: int = 3
    keys_mapped: int = 30
    keys_capacity: int = 100
    parts: int = 1
    bytes_untouched: int = 5000
    segments_untouched: int = 3
    sidecars_built: int = 2
    fenced_bytes: int = 0
    seconds: float = 0.7
    verify_seconds: float = 0.25


def partition(topic: str, number: int, **changes: object) -> PartitionFacts:
    """Returns a partition that is not compacted, unless `backlog` is set."""
    facts: dict[str, object] = {
        "log_directory": "/data/1",
        "log_start_offset": 3,
        "last_stable_offset": 38,
        "high_watermark": 40,
        "log_end_offset": 42,
        "size_bytes": 1000,
        "segments_count": 2,
    }
    return PartitionFacts(topic=topic, partition=number, **(facts | changes))  # type: ignore[arg-type]


def quarantined(topic: str, number: int, *, failures: int = 1) -> Quarantined:
    return Quarantined(
        topic_partition=TopicPartition(topic, number),
        reason="orders-1: batch at 61 is damaged",
        kind="corrupt_batch",
        failures=failures,
        retry_at=0.0,
        rest_seconds=30.0,
    )


@dataclass
class ScrapedWorld:
    """Probes with a scraper, and a clock that only a scrape advances."""

    server: ServerProbe = field(default_factory=ServerProbe)
    partitions: list[PartitionFacts] = field(default_factory=list)
    recovery: RecoveryProgress = field(default_factory=RecoveryProgress)
    groups: list[GroupFacts] = field(default_factory=list)
    listed_max: int = 100
    threads: int = 1
    dead_workers: int = 0
    coordinator_partitions: dict[str, int] = field(default_factory=lambda: {"active": 50})
    """Partition counts by state."""
    partitions_offline: int = 0
    slots_invalidated: int = 0
    transactions: TransactionFacts = field(default_factory=TransactionFacts)
    loop: LoopFacts = field(
        default_factory=lambda: LoopFacts(
            busy_seconds=12.5,
            idle_share=0.75,
            longest_stall=LoopStall(seconds=0.25, cpu_seconds=0.125, api="Fetch"),
            stalls_by_api={"Fetch": 3},
        )
    )
    quotas: QuotaFacts = field(default_factory=QuotaFacts)
    erasures: ErasureFacts | None = None
    now: float = 0.0

    def __post_init__(self) -> None:
        self.cleaner = CleanerCounts(threads=self.threads, clock=lambda: self.now)
        self.scraper = Scraper(
            BrokerCollector(
                self.server,
                self.cleaner,
                broker=self.facts,
                partitions=lambda: self.partitions,
                partitions_listed_max=self.listed_max,
                groups=lambda: self.groups,
                clock=lambda: self.now,
            ),
            clock=lambda: self.now,
        )

    def facts(self) -> BrokerFacts:
        topics: dict[str, int] = {}
        for each in self.partitions:
            topics[each.topic] = topics.get(each.topic, 0) + 1
        return BrokerFacts(
            version="1.2.3",
            is_ready=True,
            partitions_by_topic=topics,
            partitions_offline=self.partitions_offline,
            log_directories=("/data/1", "/data/2"),
            directories_offline=0,
            recovery=self.recovery,
            dead_cleaner_workers=self.dead_workers,
            coordinator_partitions={OFFSETS_TOPIC: self.coordinator_partitions},
            slots_invalidated=self.slots_invalidated,
            transactions=self.transactions,
            loop=self.loop,
            quotas=self.quotas,
            erasures=self.erasures,
            fetch_sessions=FetchSessionFacts(sessions=5, partitions=60, evictions_total=7),
            snapshots=SnapshotFacts(count=2, size_bytes=3_000, pinned_bytes=400),
            replogs={"metadata": REPLOG},
            links={
                "dr": LinkFacts(
                    is_answered=True,
                    partitions_by_state={"copying": 2, "failed": 1},
                    lag_offsets={"users": 70},
                    lag_seconds={"users": 1.5},
                    copied_bytes_total=1_000,
                    failed_attempts_total=4,
                    cut_offsets_total=2,
                    skipped_offsets_total=3,
                    resyncs_started_total=2,
                    resyncs_completed_total=1,
                )
            },
            followers=(
                FollowerFacts(
                    id="f",
                    lag_entries=3,
                    seen_seconds_ago=1.5,
                    installs=2,
                    copies=[
                        FollowedTopicFacts(
                            name="__transaction_state",
                            lag_offsets=4,
                            seen_seconds_ago=0.5,
                            checkpoints=1,
                        )
                    ],
                ),
            ),
            checkpoints={("__consumer_offsets", "49"): CHECKPOINT},
            certificates_expire_seconds={"SSL": 86_400.0},
            node_id=7,
            address="broker.example:9092",
        )

    def samples(self) -> dict[tuple[str, ...], float]:
        """Scrape. Returns the values by metric name and label values."""
        self.now += 10
        return samples_in(self.scraper.scrape().decode())


def samples_in(text: str) -> dict[tuple[str, ...], float]:
    """Returns the values in Prometheus' text, by metric name and label values."""
    return {
        (sample.name, *_in_order(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _in_order(labels: dict[str, str]) -> list[str]:
    """Returns the label values: topic and partition first, a bucket's bound last."""
    first = ("topic", "partition")
    names = sorted(
        labels, key=lambda name: (name not in first, -(name == "topic"), name == "le", name)
    )
    return [labels[name] for name in names]

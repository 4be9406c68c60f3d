"""What a scrape shows is what the probes were told."""

from __future__ import annotations

import timeit
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from metrics import collector
from metrics.cleaner_probe import CleanerCounts
from metrics.collector import BrokerCollector, BrokerFacts, PartitionFacts, Scraper
from metrics.names import METRICS
from metrics.server_probe import ServerProbe
from storage.recovery_progress import RecoveryProgress


def partition(topic: str, number: int, **changes: object) -> PartitionFacts:
    facts: dict[str, object] = {
        "log_start_offset": 3,
        "high_watermark": 40,
        "log_end_offset": 42,
        "size_bytes": 1000,
        "segments_count": 2,
        "clean_offset": None,
        "dirty_ratio": None,
    }
    return PartitionFacts(topic=topic, partition=number, **(facts | changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Looked:
    """What the cleaner's pool tells of a look at all logs."""

    dirty_ratio_max: float
    overdue_count: int = 0
    overdue_ms_max: int = 0


@dataclass
class World:
    """Probes with a scraper over them, and a clock that stands still."""

    server: ServerProbe = field(default_factory=ServerProbe)
    cleaner: CleanerCounts = field(default_factory=CleanerCounts)
    partitions: list[PartitionFacts] = field(default_factory=list)
    recovery: RecoveryProgress = field(default_factory=RecoveryProgress)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.scraper = Scraper(
            BrokerCollector(
                self.server, self.cleaner, broker=self.facts, partitions=lambda: self.partitions
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
            partitions_offline=0,
            directories_offline=0,
            recovery=self.recovery,
        )

    def samples(self) -> dict[tuple[str, ...], float]:
        """Scrape: values by name and the values of the labels."""
        self.now += 10
        text = self.scraper.scrape().decode()
        return {
            (sample.name, *_in_order(sample.labels)): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def _in_order(labels: dict[str, str]) -> list[str]:
    """The labels' values: the topic first, a bucket's bound last."""
    names = sorted(labels, key=lambda name: (name != "topic", name == "le", name))
    return [labels[name] for name in names]


@dataclass(frozen=True)
class Report:
    topic: str = "c"
    partition: int = 0
    bytes_before: int = 1000
    bytes_after: int = 400
    records_by_verdict: dict[str, int] = field(
        default_factory=lambda: {"kept_latest": 4, "dropped_superseded": 6}
    )
    keys_mapped: int = 30
    keys_capacity: int = 100
    seconds: float = 0.7
    verify_seconds: float = 0.25


def test_traffic_is_counted_by_topic() -> None:
    world = World()
    world.server.batch_appended("orders", 10, 1200)
    world.server.batch_appended("orders", 5, 600)
    world.server.batch_refused("orders", "INVALID_RECORD", 7)
    world.server.segment_deleted("orders", "time", 1000)
    world.server.segment_deleted("orders", "time", 500)
    world.server.batches_fetched("orders", 900)

    samples = world.samples()

    assert samples["kafka_server_brokertopicmetrics_messagesin_total", "orders"] == 15
    assert samples["kafka_server_brokertopicmetrics_bytesin_total", "orders"] == 1800
    assert samples["kafka_server_brokertopicmetrics_bytesout_total", "orders"] == 900
    assert samples["kompakt_records_refused_total", "orders", "INVALID_RECORD"] == 7
    assert samples["kompakt_segments_deleted_total", "orders", "time"] == 2
    assert samples["kompakt_segments_deleted_bytes_total", "orders", "time"] == 1500


def test_request_latency_has_cumulative_buckets_by_api() -> None:
    world = World()
    for seconds in (0.0001, 0.0004, 0.02, 9.0):
        world.server.request_completed("Produce", seconds)

    samples = world.samples()

    assert samples["kompakt_request_seconds_bucket", "Produce", "0.0001"] == 1
    assert samples["kompakt_request_seconds_bucket", "Produce", "0.0005"] == 2
    assert samples["kompakt_request_seconds_bucket", "Produce", "5.0"] == 3
    assert samples["kompakt_request_seconds_bucket", "Produce", "+Inf"] == 4
    assert samples["kompakt_request_seconds_count", "Produce"] == 4
    assert samples["kompakt_request_seconds_sum", "Produce"] == pytest.approx(9.0205)


def test_connections_are_counted_by_listener() -> None:
    world = World()
    world.server.connection_opened("PLAINTEXT")
    world.server.connection_opened("PLAINTEXT")
    world.server.connection_closed("PLAINTEXT")
    world.server.connection_refused("PLAINTEXT")
    world.server.protocol_error("PLAINTEXT")

    samples = world.samples()

    assert samples["kompakt_connections", "PLAINTEXT"] == 1
    assert samples["kompakt_connections_opened_total", "PLAINTEXT"] == 2
    assert samples["kompakt_connections_refused_total", "PLAINTEXT"] == 1
    assert samples["kompakt_protocol_errors_total", "PLAINTEXT"] == 1


def test_a_partition_shows_its_offsets_and_a_compacted_one_its_dirt() -> None:
    world = World(
        partitions=[partition("plain", 0), partition("c", 1, clean_offset=7, dirty_ratio=0.25)]
    )

    samples = world.samples()

    assert samples["kafka_topic_partitions", "plain"] == 1
    assert samples["kafka_topic_partition_oldest_offset", "plain", "0"] == 3
    assert samples["kafka_topic_partition_current_offset", "plain", "0"] == 40
    assert samples["kafka_log_log_logendoffset", "plain", "0"] == 42
    assert samples["kafka_log_log_size", "plain", "0"] == 1000
    assert samples["kompakt_log_clean_offset", "c", "1"] == 7
    assert samples["kompakt_log_dirty_ratio", "c", "1"] == 0.25
    assert ("kompakt_log_dirty_ratio", "plain", "0") not in samples


def test_a_scrape_lists_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "PARTITIONS_LISTED_MAX", 3)
    world = World(partitions=[partition("t", number) for number in range(10)])

    samples = world.samples()

    assert sum(name == "kafka_log_log_size" for name, *_ in samples) == 3
    assert samples[("kompakt_partitions_unlisted",)] == 7
    assert samples[("kafka_server_replicamanager_partitioncount",)] == 10


def test_the_cleaner_shows_its_passes_and_verdicts() -> None:
    world = World()
    world.cleaner.pass_started("c", 0)
    world.cleaner.pass_started("c", 1)
    world.cleaner.pass_started("c", 2)
    world.cleaner.bytes_read(2000)
    world.cleaner.bytes_written(400)
    world.cleaner.throttled(0.5)
    world.cleaner.pass_completed(Report())
    world.cleaner.pass_failed("c", 1, "broken")
    world.cleaner.quarantined("c", 1, "broken", bytes_count=5000)
    world.cleaner.space_checked({"/data/1": 5000, "/data/2": 7}, short_count=1)
    world.cleaner.picked(Looked(dirty_ratio_max=0.75, overdue_count=2, overdue_ms_max=1500))

    samples = world.samples()

    assert samples["kompakt_cleaner_passes_total", "completed"] == 1
    assert samples["kompakt_cleaner_passes_total", "failed"] == 1
    assert samples[("kompakt_cleaner_passes_running",)] == 1
    assert samples[("kompakt_cleaner_oldest_pass_seconds",)] > 0
    assert samples["kompakt_cleaner_records_total", "dropped_superseded"] == 6
    assert samples["kompakt_cleaner_records_total", "kept_latest"] == 4
    assert samples[("kompakt_cleaner_read_bytes_total",)] == 2000
    assert samples[("kompakt_cleaner_written_bytes_total",)] == 400
    assert samples[("kompakt_cleaner_reclaimed_bytes_total",)] == 600
    assert samples[("kompakt_cleaner_throttled_seconds_total",)] == 0.5
    assert samples[("kompakt_cleaner_verify_seconds_total",)] == 0.25
    assert samples[("kompakt_cleaner_map_utilization_ratio",)] == 0.3
    assert samples[("kafka_log_logcleanermanager_uncleanable_partitions_count",)] == 1
    assert samples[("kafka_log_logcleanermanager_uncleanable_bytes",)] == 5000
    assert samples[("kafka_log_logcleanermanager_max_dirty_percent",)] == 75
    assert samples[("kafka_log_logcleaner_max_compaction_delay_secs",)] == 1.5
    assert samples[("kompakt_cleaner_overdue_partitions",)] == 2
    assert samples[("kompakt_cleaner_directories_short_of_space",)] == 1
    assert samples["kompakt_log_directory_free_bytes", "/data/2"] == 7
    assert samples["kompakt_cleaner_pass_seconds_bucket", "1.0"] == 1


def test_a_partition_leaves_the_quarantine_when_it_is_released() -> None:
    world = World()
    world.cleaner.quarantined("c", 1, "broken", bytes_count=5000)
    world.cleaner.released("c", 1)

    assert world.samples()[("kafka_log_logcleanermanager_uncleanable_bytes",)] == 0


def test_a_deleted_topic_is_not_counted_on() -> None:
    world = World()
    world.server.batch_appended("gone", 10, 1200)
    world.server.topic_deleted("gone")

    assert not [name for name in world.samples() if "gone" in name]


def test_every_metric_of_the_table_is_shown() -> None:
    world = World(partitions=[partition("c", 0, clean_offset=1, dirty_ratio=0.5)])
    world.server.batch_appended("c", 1, 1)
    world.server.batch_refused("c", "X", 1)
    world.server.segment_deleted("c", "time", 1)
    world.server.request_completed("Fetch", 0.1)
    world.server.connection_opened("P")
    world.cleaner.pass_started("c", 0)
    world.cleaner.pass_completed(Report())
    world.cleaner.picked(Looked(dirty_ratio_max=0))
    world.cleaner.space_checked({"/data/1": 5000}, short_count=0)

    shown = {name for name, *_ in world.samples()}

    for metric in METRICS:
        name = metric.name + "_count" if metric.kind == "histogram" else metric.name
        assert name in shown, metric.name


def test_scrapes_within_a_second_share_one_text() -> None:
    world = World()
    first = world.scraper.scrape()
    world.server.connection_opened("PLAINTEXT")

    assert world.scraper.scrape() is first
    world.now += 1
    assert world.scraper.scrape() is not first


def test_counting_a_batch_costs_less_than_ten_microseconds() -> None:
    """Measured about 0.2 us; the bound only catches something of another kind, such as locks."""
    probe = ServerProbe()

    def count() -> None:
        probe.batch_appended("t", 1, 100)
        probe.request_completed("Produce", 0.001)

    assert min(timeit.repeat(count, number=1000, repeat=5)) / 1000 < 10e-6


def test_what_recovery_has_done_is_counted() -> None:
    world = World()
    world.recovery.recovered()
    world.recovery.scanned(100)
    world.recovery.cut(7)
    world.recovery.cut(3)
    samples = world.samples()
    assert samples["kompakt_recovery_logs_total",] == 1
    assert samples["kompakt_recovery_scanned_bytes_total",] == 100
    assert samples["kompakt_recovery_cut_bytes_total",] == 10
    assert samples["kompakt_recovery_cut_files_total",] == 2

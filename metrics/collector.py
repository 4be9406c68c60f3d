"""Turn the probes' counts and the logs' offsets into Prometheus' text, at scrape time.

Nothing here is kept between scrapes but the last text, for `CACHE_SECONDS`: ten gauges of
prometheus-client's for each partition would cost 9 KiB a partition for good.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from metrics import names
from metrics.cleaner_probe import CleanerCounts
from metrics.histogram import Histogram
from metrics.names import Metric
from metrics.server_probe import ServerProbe

PARTITIONS_LISTED_MAX = 2_000
"""A scrape lists so many partitions at most, in the order of names, so its cost is bounded."""

CACHE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition as a scrape shows it."""

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments_count: int
    clean_offset: int | None
    """None where the topic is not compacted."""
    dirty_ratio: float | None


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
    directories_offline: int
    recovery: RecoveryFacts


class BrokerCollector(Collector):
    """Collects one broker. Runs in the scrape's thread; what it reads may be torn, never wrong."""

    def __init__(
        self,
        server: ServerProbe,
        cleaner: CleanerCounts,
        *,
        broker: Callable[[], BrokerFacts],
        partitions: Callable[[], Iterable[PartitionFacts]],
    ) -> None:
        self._server = server
        self._cleaner = cleaner
        self._broker = broker
        self._partitions = partitions

    def collect(self) -> Iterator[Family]:
        facts = self._broker()
        yield from self._collect_broker(facts)
        yield from self._collect_recovery(facts.recovery)
        yield from self._collect_partitions(facts)
        yield from self._collect_traffic()
        yield from self._collect_connections()
        yield from self._collect_cleaner()

    def _collect_broker(self, facts: BrokerFacts) -> Iterator[Family]:
        yield _gauge(names.BUILD_INFO, [((facts.version,), 1)])
        yield _gauge(names.IS_READY, [((), facts.is_ready)])
        yield _gauge(names.OFFLINE_DIRECTORIES, [((), facts.directories_offline)])
        yield _gauge(names.OFFLINE_PARTITIONS, [((), facts.partitions_offline)])
        by_topic = facts.partitions_by_topic
        yield _gauge(names.PARTITIONS, [((), sum(by_topic.values()))])
        yield _gauge(
            names.TOPIC_PARTITIONS, [((topic,), count) for topic, count in by_topic.items()]
        )

    def _collect_recovery(self, recovery: RecoveryFacts) -> Iterator[Family]:
        yield _counter(names.LOGS_RECOVERED, [((), recovery.logs_recovered_total)])
        yield _counter(names.RECOVERY_SCANNED, [((), recovery.bytes_scanned_total)])
        yield _counter(names.RECOVERY_CUT, [((), recovery.bytes_cut_total)])
        yield _counter(names.RECOVERY_CUT_FILES, [((), recovery.files_cut_total)])

    def _collect_partitions(self, facts: BrokerFacts) -> Iterator[Family]:
        listed = list(islice(self._partitions(), PARTITIONS_LISTED_MAX))
        count = sum(facts.partitions_by_topic.values()) - facts.partitions_offline
        yield _gauge(names.PARTITIONS_UNLISTED, [((), max(count - len(listed), 0))])
        columns: tuple[tuple[Metric, Callable[[PartitionFacts], float | None]], ...] = (
            (names.OLDEST_OFFSET, lambda each: each.log_start_offset),
            (names.CURRENT_OFFSET, lambda each: each.high_watermark),
            (names.LOG_START_OFFSET, lambda each: each.log_start_offset),
            (names.LOG_END_OFFSET, lambda each: each.log_end_offset),
            (names.LOG_SIZE, lambda each: each.size_bytes),
            (names.LOG_SEGMENTS, lambda each: each.segments_count),
            (names.CLEAN_OFFSET, lambda each: each.clean_offset),
            (names.DIRTY_RATIO, lambda each: each.dirty_ratio),
        )
        for metric, column in columns:
            values = (((p.topic, str(p.partition)), column(p)) for p in listed)
            yield _gauge(metric, ((labels, v) for labels, v in values if v is not None))

    def _collect_traffic(self) -> Iterator[Family]:
        probe = self._server
        topics = sorted(probe.topics.items())
        yield _counter(names.RECORDS_IN, [((topic,), c.records_in) for topic, c in topics])
        yield _counter(names.BYTES_IN, [((topic,), c.bytes_in) for topic, c in topics])
        yield _counter(names.BYTES_OUT, [((topic,), c.bytes_out) for topic, c in topics])
        yield _counter(
            names.RECORDS_REFUSED,
            [((t, why), n) for t, c in topics for why, n in sorted(c.refused_by_reason.items())],
        )
        yield _counter(
            names.SEGMENTS_DELETED,
            [
                ((topic, why), count)
                for topic, c in topics
                for why, count in sorted(c.deleted_segments_by_reason.items())
            ],
        )
        yield _counter(
            names.BYTES_DELETED,
            [
                ((topic, why), count)
                for topic, c in topics
                for why, count in sorted(c.deleted_bytes_by_reason.items())
            ],
        )
        requests = sorted(probe.requests.items())
        yield _histogram(names.REQUEST_SECONDS, [((api,), each) for api, each in requests])
        yield _counter(names.NETWORK_RECEIVED, [((), probe.bytes_received_total)])
        yield _counter(names.NETWORK_SENT, [((), probe.bytes_sent_total)])
        yield _histogram(names.SYNC_SECONDS, [((), probe.sync_seconds)])
        yield _counter(names.LOGS_SYNCED, [((), probe.logs_synced)])
        yield _counter(names.COLD_READS, [((), probe.cold_reads)])

    def _collect_connections(self) -> Iterator[Family]:
        listeners = sorted(self._server.listeners.items())
        yield _gauge(names.CONNECTIONS, [((name,), c.unclosed) for name, c in listeners])
        yield _counter(names.CONNECTIONS_OPENED, [((name,), c.opened) for name, c in listeners])
        yield _counter(names.CONNECTIONS_REFUSED, [((name,), c.refused) for name, c in listeners])
        yield _counter(
            names.PROTOCOL_ERRORS, [((name,), c.protocol_errors) for name, c in listeners]
        )

    def _collect_cleaner(self) -> Iterator[Family]:
        cleaner = self._cleaner
        results, verdicts = cleaner.passes_by_result, sorted(cleaner.records_by_verdict.items())
        quarantine = list(cleaner.quarantine.values())
        since = cleaner.seconds_since_picked
        yield _counter(names.PASSES, [((result,), count) for result, count in results.items()])
        yield _histogram(names.PASS_SECONDS, [((), cleaner.pass_seconds)])
        yield _gauge(names.PASSES_RUNNING, [((), cleaner.running)])
        yield _gauge(names.OLDEST_PASS, [((), cleaner.oldest_pass_seconds)])
        yield _counter(names.CLEANER_READ, [((), cleaner.bytes_read_total)])
        yield _counter(names.CLEANER_WRITTEN, [((), cleaner.bytes_written_total)])
        yield _counter(names.CLEANER_RECORDS, [((each,), count) for each, count in verdicts])
        yield _counter(names.CLEANER_RECLAIMED, [((), cleaner.bytes_reclaimed_total)])
        yield _counter(names.CLEANER_VERIFIED, [((), cleaner.verify_seconds)])
        yield _counter(names.CLEANER_THROTTLED, [((), cleaner.throttled_seconds)])
        yield _gauge(names.CLEANER_GUARD_RATE, [((), cleaner.guard_bytes_per_second)])
        yield _gauge(names.CLEANER_GUARD_QUIET, [((), cleaner.guard_quiet_p99)])
        yield _counter(names.CLEANER_WORKER_FAILURES, [((), cleaner.worker_failures)])
        yield _gauge(names.MAP_UTILIZATION, [((), cleaner.map_utilization)])
        yield _gauge(names.UNCLEANABLE_PARTITIONS, [((), len(quarantine))])
        yield _gauge(names.UNCLEANABLE_BYTES, [((), sum(quarantine))])
        yield _gauge(names.MAX_DIRTY_PERCENT, [((), 100 * cleaner.dirty_ratio_max)])
        yield _gauge(names.MAX_COMPACTION_DELAY, [((), cleaner.overdue_ms_max / 1000)])
        free = sorted(cleaner.free_bytes_by_directory.items())
        yield _gauge(names.FREE_BYTES, [((path,), count) for path, count in free])
        yield _gauge(names.DISK_PRESSURE, [((), cleaner.directories_short_of_space)])
        yield _gauge(names.OVERDUE_PARTITIONS, [((), cleaner.overdue_count)])
        if since is not None:
            yield _gauge(names.TIME_SINCE_LAST_RUN, [((), 1000 * since)])


class Scraper:
    """The text of `/metrics`. Any thread; one collects at a time, others wait for its text."""

    def __init__(
        self, collector: Collector, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._clock = clock
        self._lock = threading.Lock()
        self._text = b""
        self._text_at = float("-inf")

    def scrape(self) -> bytes:
        with self._lock:
            if self._clock() - self._text_at >= CACHE_SECONDS:
                self._text = generate_latest(self._registry)
                self._text_at = self._clock()
            return self._text


Samples = Iterable[tuple[tuple[str, ...], float]]


def _gauge(metric: Metric, samples: Samples) -> Family:
    assert metric.kind == "gauge"
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _counter(metric: Metric, samples: Samples) -> Family:
    assert metric.kind == "counter"
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, samples: Iterable[tuple[tuple[str, ...], Histogram]]) -> Family:
    assert metric.kind == "histogram"
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, histogram in samples:
        family.add_metric(labels, histogram.cumulative(), histogram.total)
    return family

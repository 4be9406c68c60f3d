"""Turns the probes' counts and the logs' offsets into Prometheus' text, at scrape time.

Between scrapes it keeps only the last text, for `CACHE_SECONDS`, and the counts of requests
(`request_times.py`): twenty permanent gauges of prometheus-client for each partition would cost
18 KiB a partition.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from metrics import broker_names, client_names, coordinator_names
from metrics.broker_collector import collect_broker
from metrics.cleaner_collector import collect_cleaner
from metrics.cleaner_probe import CleanerCounts
from metrics.facts import (
    BrokerFacts,
    FetchSessionFacts,
    GroupFacts,
    KeyLookupFacts,
    PartitionFacts,
    QuotaFacts,
    RecoveryFacts,
    TransactionFacts,
    ViewFacts,
)
from metrics.families import counter, gauge, histogram, in_order
from metrics.group_collector import collect_groups
from metrics.mistakes import MISTAKES
from metrics.partition_collector import collect_partitions
from metrics.request_times import RequestTimes
from metrics.server_probe import ServerProbe

CACHE_SECONDS = 1.0
GZIP_LEVEL = 1
"""The fastest level already compresses a scrape to a twelfth."""


class BrokerCollector(Collector):
    """Collects one broker's metrics. Runs in the scrape's thread, while other threads count.

    Values that it reads may therefore belong to slightly different moments.
    """

    def __init__(
        self,
        server: ServerProbe,
        cleaner: CleanerCounts,
        *,
        broker: Callable[[], BrokerFacts],
        partitions: Callable[[], Iterable[PartitionFacts]],
        partitions_listed_max: int,
        groups: Callable[[], Iterable[GroupFacts]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`partitions_listed_max` bounds the partitions, topics and groups that a metric lists."""
        self._server = server
        self._cleaner = cleaner
        self._broker = broker
        self._partitions = partitions
        self._partitions_listed_max = partitions_listed_max
        self._groups = groups
        self._clock = clock
        self._request_times = RequestTimes()

    def collect(self) -> Iterator[Family]:
        for family in self._families():
            yield family
            # Release the interpreter to the event loop, if it waits for it.
            time.sleep(0)

    def _families(self) -> Iterator[Family]:
        facts = self._broker()
        yield from collect_broker(facts)
        yield from self._collect_recovery(facts.recovery)
        yield counter(coordinator_names.SLOTS_INVALIDATED, [((), facts.slots_invalidated)])
        yield from self._collect_transactions(facts.transactions)
        yield from self._collect_traffic()
        yield from self._collect_connections()
        yield from self._collect_fetch_sessions(facts.fetch_sessions)
        yield from _collect_key_lookups(facts.key_lookups)
        yield from _collect_views(facts.views)
        yield from self._collect_quotas(facts.quotas)
        expiries = facts.certificates_expire_seconds.items()
        yield gauge(client_names.CERTIFICATE_EXPIRY, [((name,), left) for name, left in expiries])
        partitions = list(self._partitions())
        yield from collect_partitions(
            partitions,
            self._cleaner,
            node_id=facts.node_id,
            listed_max=self._partitions_listed_max,
        )
        yield from collect_cleaner(self._cleaner, facts, partitions)
        yield from collect_groups(self._groups(), listed_max=self._partitions_listed_max)

    def _collect_recovery(self, recovery: RecoveryFacts) -> Iterator[Family]:
        yield counter(broker_names.LOGS_RECOVERED, [((), recovery.logs_recovered_total)])
        yield counter(broker_names.RECOVERY_SCANNED, [((), recovery.bytes_scanned_total)])
        yield counter(broker_names.RECOVERY_CUT, [((), recovery.bytes_cut_total)])
        yield counter(broker_names.RECOVERY_CUT_FILES, [((), recovery.files_cut_total)])

    def _collect_transactions(self, facts: TransactionFacts) -> Iterator[Family]:
        by_state, ended = facts.ids_by_state, facts.ended_by_outcome
        yield gauge(
            coordinator_names.TRANSACTIONAL_IDS, [((state,), n) for state, n in by_state.items()]
        )
        yield gauge(coordinator_names.OLDEST_TRANSACTION, [((), facts.oldest_open_ms / 1000)])
        yield counter(
            coordinator_names.TRANSACTIONS_ENDED, [((how,), n) for how, n in ended.items()]
        )
        yield counter(coordinator_names.TRANSACTIONS_TIMED_OUT, [((), facts.timed_out)])

    def _collect_traffic(self) -> Iterator[Family]:
        probe = self._server
        topics = in_order(probe.topics)
        yield counter(client_names.RECORDS_IN, [((topic,), c.records_in) for topic, c in topics])
        yield counter(client_names.BYTES_IN, [((topic,), c.bytes_in) for topic, c in topics])
        yield counter(client_names.BYTES_OUT, [((topic,), c.bytes_out) for topic, c in topics])
        yield counter(client_names.PRODUCES, [((topic,), c.produces) for topic, c in topics])
        yield counter(
            client_names.PRODUCES_FAILED, [((topic,), c.produces_failed) for topic, c in topics]
        )
        yield counter(client_names.FETCHES, [((topic,), c.fetches) for topic, c in topics])
        yield counter(
            client_names.FETCHES_FAILED, [((topic,), c.fetches_failed) for topic, c in topics]
        )
        yield counter(
            client_names.RECORDS_REFUSED,
            [((t, why), n) for t, c in topics for why, n in in_order(c.refused_by_reason)],
        )
        yield counter(
            client_names.SEGMENTS_DELETED,
            [
                ((topic, why), count)
                for topic, c in topics
                for why, count in in_order(c.deleted_segments_by_reason)
            ],
        )
        yield counter(
            client_names.BYTES_DELETED,
            [
                ((topic, why), count)
                for topic, c in topics
                for why, count in in_order(c.deleted_bytes_by_reason)
            ],
        )
        yield from self._collect_requests()
        yield counter(client_names.NETWORK_RECEIVED, [((), probe.bytes_received_total)])
        yield counter(client_names.NETWORK_SENT, [((), probe.bytes_sent_total)])
        yield histogram(broker_names.SYNC_SECONDS, [((), probe.sync_seconds)])
        yield counter(broker_names.LOGS_SYNCED, [((), probe.logs_synced)])
        mistakes = sorted(MISTAKES.by_work().items())
        yield counter(broker_names.BACKGROUND_FAILURES, [((work,), n) for work, n in mistakes])
        yield counter(broker_names.COLD_READS, [((), probe.cold_reads)])

    def _collect_requests(self) -> Iterator[Family]:
        requests = dict(in_order(self._server.requests))
        yield histogram(
            client_names.REQUEST_SECONDS, [((api,), each) for api, each in requests.items()]
        )
        yield counter(
            client_names.REQUESTS, [((api,), sum(each.counts)) for api, each in requests.items()]
        )
        quantiles = self._request_times.quantiles(requests, self._clock())
        yield gauge(client_names.REQUEST_TIME, [((api, share), ms) for api, share, ms in quantiles])

    def _collect_connections(self) -> Iterator[Family]:
        listeners = in_order(self._server.listeners)
        yield gauge(client_names.CONNECTIONS, [((name,), c.unclosed) for name, c in listeners])
        yield gauge(
            client_names.CONNECTION_COUNT, [((name, "0"), c.unclosed) for name, c in listeners]
        )
        yield counter(
            client_names.CONNECTIONS_OPENED, [((name,), c.opened) for name, c in listeners]
        )
        yield counter(
            client_names.CONNECTIONS_REFUSED, [((name,), c.refused) for name, c in listeners]
        )
        yield counter(
            client_names.PROTOCOL_ERRORS, [((name,), c.protocol_errors) for name, c in listeners]
        )
        yield counter(
            client_names.CONNECTIONS_DELAYED, [((name,), c.delayed) for name, c in listeners]
        )
        yield counter(
            client_names.CONNECTIONS_DELAYED_SECONDS,
            [((name,), c.delayed_seconds) for name, c in listeners],
        )
        yield counter(
            client_names.TLS_HANDSHAKES_FAILED,
            [((name,), c.handshakes_failed) for name, c in listeners],
        )
        yield counter(
            client_names.SESSIONS_EXPIRED, [((name, "0"), c.expired) for name, c in listeners]
        )
        yield from self._collect_logins()

    def _collect_logins(self) -> Iterator[Family]:
        logins = [((name, "0", how), c) for (name, how), c in in_order(self._server.logins)]
        yield counter(client_names.LOGINS, [(labels, c.succeeded) for labels, c in logins])
        yield counter(client_names.LOGINS_FAILED, [(labels, c.failed) for labels, c in logins])
        yield counter(
            client_names.LOGINS_AGAIN, [(labels, c.succeeded_again) for labels, c in logins]
        )
        yield counter(
            client_names.LOGINS_AGAIN_FAILED, [(labels, c.failed_again) for labels, c in logins]
        )

    def _collect_fetch_sessions(self, facts: FetchSessionFacts) -> Iterator[Family]:
        yield gauge(client_names.FETCH_SESSIONS, [((), facts.sessions)])
        yield gauge(client_names.FETCH_SESSION_PARTITIONS, [((), facts.partitions)])
        yield counter(client_names.FETCH_SESSION_EVICTIONS, [((), facts.evictions_total)])

    def _collect_quotas(self, facts: QuotaFacts) -> Iterator[Family]:
        throttles = in_order(self._server.throttles)
        yield counter(client_names.THROTTLES, [((quota,), c.count) for quota, c in throttles])
        yield counter(
            client_names.THROTTLE_SECONDS, [((quota,), c.seconds) for quota, c in throttles]
        )
        yield gauge(client_names.QUOTA_ENTITIES, [((), facts.entities_count)])
        for quota, metric in client_names.QUOTA_USES.items():
            uses = facts.uses.get(quota, ())
            yield gauge(metric, [((user, client_id), used) for user, client_id, used in uses])


def _collect_key_lookups(facts: KeyLookupFacts) -> Iterator[Family]:
    yield counter(client_names.KEY_LOOKUPS, [((), facts.lookups_total)])
    yield gauge(client_names.KEY_TABLES, [((), facts.tables)])
    yield gauge(client_names.KEY_TABLE_BYTES, [((), facts.table_bytes)])
    yield gauge(client_names.KEY_TABLE_SPILLED_BYTES, [((), facts.spilled_bytes)])
    yield counter(client_names.KEY_TABLES_MADE, [((), facts.made_total)])


def _collect_views(facts: ViewFacts) -> Iterator[Family]:
    reads = [(("stored",), facts.stored_total), (("filtered",), facts.filtered_total)]
    yield counter(client_names.VIEW_READS, reads)
    yield counter(client_names.VIEW_SCANNED_BYTES, [((), facts.scanned_bytes_total)])


class Scraper:
    """Makes the text of `/metrics`. Any thread; one collects at a time, others wait for its text."""

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
        self._packed: bytes | None = None
        self._text_at = float("-inf")

    def scrape(self) -> bytes:
        """Returns the text."""
        with self._lock:
            self._collect()
            return self._text

    def scrape_gzip(self) -> bytes:
        """Returns the text compressed; all requests within `CACHE_SECONDS` share it."""
        with self._lock:
            self._collect()
            if self._packed is None:
                self._packed = gzip.compress(self._text, GZIP_LEVEL, mtime=0)
            return self._packed

    def _collect(self) -> None:
        if self._clock() - self._text_at >= CACHE_SECONDS:
            self._text = generate_latest(self._registry)
            self._packed = None
            self._text_at = self._clock()

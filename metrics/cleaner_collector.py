"""Metrics of the whole cleaner at scrape time: our names, and Kafka's with Kafka's meanings.

Kafka's gauges describe the last pass of each cleaner thread, or the last time a thread looked for
work. Our values for logs are computed at the scrape, so that a hanging cleaner cannot hide its
backlog. (Kafka's `max-buffer-utilization-percent` was always 0, KAFKA-18597, and its gauges
disappeared or were read while threads were replaced, KAFKA-16574, KAFKA-20346; here no gauge belongs
to a thread.)

Source: Apache Kafka, LogCleaner.java l.110-192, LogCleanerManager.java l.140-197.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric as Family

from metrics import broker_names, cleaner_names
from metrics.cleaner_probe import CleanerCounts
from metrics.facts import BrokerFacts, ErasureFacts, PartitionFacts
from metrics.families import counter, gauge, histogram, in_order


def collect_cleaner(
    cleaner: CleanerCounts, broker: BrokerFacts, partitions: Sequence[PartitionFacts]
) -> Iterator[Family]:
    """Yields the cleaner's metrics except those of single partitions or topics."""
    yield from _collect_passes(cleaner)
    yield from _collect_budgets(cleaner)
    yield from _collect_threads(cleaner, broker)
    yield from _collect_logs(partitions)
    yield from _collect_uncleanable(cleaner, broker, partitions)
    yield from _collect_erasures(broker.erasures)


def _collect_passes(cleaner: CleanerCounts) -> Iterator[Family]:
    verdicts = in_order(cleaner.records_by_verdict)
    results = cleaner.passes_by_result.items()
    yield counter(cleaner_names.PASSES, [((result,), count) for result, count in results])
    yield histogram(cleaner_names.PASS_SECONDS, [((), cleaner.pass_seconds)])
    yield gauge(cleaner_names.PASSES_RUNNING, [((), cleaner.running)])
    yield gauge(cleaner_names.CLEANER_LEASES, [((), cleaner.leases)])
    yield gauge(cleaner_names.OLDEST_PASS, [((), cleaner.oldest_pass_seconds)])
    yield counter(cleaner_names.CLEANER_BUSY, [((), cleaner.busy_seconds)])
    yield counter(cleaner_names.CLEANER_READ, [((), cleaner.bytes_read_total)])
    yield counter(cleaner_names.CLEANER_WRITTEN, [((), cleaner.bytes_written_total)])
    yield counter(cleaner_names.CLEANER_RECORDS, [((each,), count) for each, count in verdicts])
    yield counter(cleaner_names.CLEANER_OUTRANKED, [((), cleaner.outranked_total)])
    yield counter(cleaner_names.EXPIRY_SWEEPS, [((), cleaner.sweeps_total)])
    yield counter(cleaner_names.EXPIRY_FOUND, [((), cleaner.expired_total)])
    yield counter(cleaner_names.EXPIRY_TOMBSTONES, [((), cleaner.expiry_tombstones_total)])
    yield counter(cleaner_names.EXPIRY_UNREADABLE, [((), cleaner.unreadable_ttls_total)])
    yield counter(cleaner_names.CLEANER_MOVED, [((), cleaner.unkeyed_moved_total)])
    yield counter(cleaner_names.CLEANER_RECLAIMED, [((), cleaner.bytes_reclaimed_total)])
    yield counter(cleaner_names.CLEANER_UNTOUCHED_BYTES, [((), cleaner.bytes_untouched_total)])
    yield counter(
        cleaner_names.CLEANER_UNTOUCHED_SEGMENTS, [((), cleaner.segments_untouched_total)]
    )
    yield counter(cleaner_names.CLEANER_SIDECARS, [((), cleaner.sidecars_built_total)])
    events = cleaner.events_by_result.items()
    yield counter(cleaner_names.CLEANER_EVENTS, [((result,), count) for result, count in events])
    yield counter(cleaner_names.CLEANER_VERIFIED, [((), cleaner.verify_seconds)])


def _collect_erasures(facts: ErasureFacts | None) -> Iterator[Family]:
    states = {} if facts is None else facts.by_state
    ends = [] if facts is None else [facts.next_deadline_seconds]
    yield gauge(cleaner_names.ERASURES, [((state,), count) for state, count in states.items()])
    yield gauge(cleaner_names.ERASURES_AT_RISK, [((), facts.at_risk)] if facts is not None else [])
    yield gauge(cleaner_names.ERASURES_OVERDUE, [((), facts.overdue)] if facts is not None else [])
    yield gauge(
        cleaner_names.ERASURES_NEXT_DEADLINE,
        [((), seconds) for seconds in ends if seconds is not None],
    )


def _collect_budgets(cleaner: CleanerCounts) -> Iterator[Family]:
    free = in_order(cleaner.free_bytes_by_directory)
    yield counter(cleaner_names.CLEANER_THROTTLED, [((), cleaner.throttled_seconds)])
    yield gauge(cleaner_names.CLEANER_GUARD_RATE, [((), cleaner.guard_bytes_per_second)])
    yield gauge(cleaner_names.CLEANER_GUARD_QUIET, [((), cleaner.guard_quiet_p99)])
    yield gauge(broker_names.FREE_BYTES, [((path,), count) for path, count in free])
    yield gauge(cleaner_names.DISK_PRESSURE, [((), cleaner.directories_short_of_space)])


def _collect_threads(cleaner: CleanerCounts, broker: BrokerFacts) -> Iterator[Family]:
    last = tuple(cleaner.last_passes)
    buffer = max((each.keys_mapped / max(each.keys_capacity, 1) for each in last), default=0)
    read = sum(each.bytes_before for each in last)
    written = sum(each.bytes_after for each in last)
    yield gauge(cleaner_names.MAX_BUFFER_UTILIZATION, [((), 100 * buffer)])
    yield gauge(
        cleaner_names.CLEANER_MAP_PARTS, [((), max((each.parts for each in last), default=0))]
    )
    yield gauge(cleaner_names.RECOPY_PERCENT, [((), 100 * written / max(read, 1))])
    yield gauge(
        cleaner_names.MAX_CLEAN_TIME, [((), max((each.seconds for each in last), default=0))]
    )
    yield gauge(cleaner_names.CLEANER_THREADS, [((), cleaner.threads)])
    yield gauge(cleaner_names.DEAD_THREADS, [((), broker.dead_cleaner_workers)])
    yield gauge(cleaner_names.STALLED_TASKS, [((), broker.stalled_cleaner_tasks)])
    yield gauge(cleaner_names.LEDGER_BREAKS, [((), broker.cleaner_ledger_breaks)])
    yield counter(cleaner_names.CLEANER_WORKER_FAILURES, [((), cleaner.worker_failures)])
    since = cleaner.seconds_since_picked
    if since is not None:
        yield gauge(cleaner_names.TIME_SINCE_LAST_RUN, [((), 1000 * since)])


def _collect_logs(partitions: Sequence[PartitionFacts]) -> Iterator[Family]:
    ratios = (each.backlog.dirty_ratio for each in partitions if each.backlog)
    overdue = [each.overdue_ms for each in partitions if each.overdue_ms > 0]
    yield gauge(cleaner_names.MAX_DIRTY_PERCENT, [((), 100 * max(ratios, default=0))])
    yield gauge(cleaner_names.MAX_COMPACTION_DELAY, [((), max(overdue, default=0) / 1000)])
    yield gauge(cleaner_names.OVERDUE_PARTITIONS, [((), len(overdue))])


def _collect_uncleanable(
    cleaner: CleanerCounts, broker: BrokerFacts, partitions: Sequence[PartitionFacts]
) -> Iterator[Family]:
    counts = dict.fromkeys(broker.log_directories, 0)
    bytes_counts = dict.fromkeys(broker.log_directories, 0)
    for each in partitions:
        if each.backlog and (each.topic, each.partition) in cleaner.quarantine:
            path = each.log_directory
            counts[path] = counts.get(path, 0) + 1
            bytes_counts[path] = bytes_counts.get(path, 0) + each.backlog.cleanable_bytes
    yield gauge(
        cleaner_names.UNCLEANABLE_PARTITIONS, [((p,), count) for p, count in counts.items()]
    )
    yield gauge(
        cleaner_names.UNCLEANABLE_BYTES, [((p,), count) for p, count in bytes_counts.items()]
    )

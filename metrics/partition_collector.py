"""Metrics of partitions and topics at scrape time, with a bound on how many each metric lists.

Metrics with Kafka's names list the largest partitions by bytes, the same partitions for all of these
names, so that dashboards can add and subtract their values. Our metrics list the partitions, and the
topics, with the largest values: those an operator looks for. A topic's value is the sum over all its
partitions, or the worst one's value; it includes all partitions.

Partitions of internal topics that were never written to have no series of their own: a broker with
one group has 49 of `__consumer_offsets`, and their values, all 0, were half of a scrape.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.core import Metric as Family

from metrics import broker_names, cleaner_names, partition_names
from metrics.cleaner_probe import CleanerCounts, PartitionCounts
from metrics.facts import Backlog, PartitionFacts
from metrics.families import counter, gauge
from metrics.metric import Metric


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """A compacted partition with the cleaner's counts for it."""

    facts: PartitionFacts
    backlog: Backlog
    counts: PartitionCounts | None
    seconds_since_pass: float | None

    @property
    def horizon_seconds(self) -> float | None:
        horizon_ms = self.backlog.horizon_ms
        return None if horizon_ms is None else horizon_ms / 1000

    @property
    def tombstones_due_seconds(self) -> float | None:
        due_ms = self.backlog.tombstones_due_ms
        return None if due_ms is None else due_ms / 1000

    @property
    def bytes_reclaimed(self) -> int | None:
        return None if self.counts is None else self.counts.bytes_reclaimed


Combine: TypeAlias = Callable[[Iterable[float]], float]


@dataclass(frozen=True, slots=True)
class Column:
    """One value of compacted partitions, exported by partition and by topic."""

    by_partition: Metric
    by_topic: Metric
    combine: Combine
    """Combines the values of a topic's partitions into the topic's value."""
    value: Callable[[CompactedPartition], float | None]


COLUMNS = (
    Column(
        cleaner_names.DIRTY_BYTES,
        cleaner_names.TOPIC_DIRTY_BYTES,
        sum,
        lambda each: each.backlog.dirty_bytes,
    ),
    Column(
        cleaner_names.CLEANABLE_BYTES,
        cleaner_names.TOPIC_CLEANABLE_BYTES,
        sum,
        lambda each: each.backlog.cleanable_bytes,
    ),
    Column(
        cleaner_names.DIRTY_RATIO,
        cleaner_names.TOPIC_DIRTY_RATIO,
        max,
        lambda each: each.backlog.dirty_ratio,
    ),
    Column(
        cleaner_names.RECLAIMABLE,
        cleaner_names.TOPIC_RECLAIMABLE,
        sum,
        lambda each: each.facts.reclaimable_bytes,
    ),
    Column(
        cleaner_names.RECLAIMABLE_ERROR,
        cleaner_names.TOPIC_RECLAIMABLE_ERROR,
        lambda errors: math.hypot(*errors),
        lambda each: each.facts.reclaimable_error_bytes,
    ),
    Column(
        cleaner_names.OFFSET_LAG,
        cleaner_names.TOPIC_OFFSET_LAG,
        sum,
        lambda each: each.backlog.offset_lag,
    ),
    Column(
        cleaner_names.RECORDS,
        cleaner_names.TOPIC_RECORDS,
        sum,
        lambda each: each.facts.records,
    ),
    Column(
        cleaner_names.OVERDUE,
        cleaner_names.TOPIC_OVERDUE,
        max,
        lambda each: each.facts.overdue_ms / 1000,
    ),
    Column(
        cleaner_names.SINCE_PASS,
        cleaner_names.TOPIC_SINCE_PASS,
        max,
        lambda each: each.seconds_since_pass,
    ),
    Column(
        cleaner_names.TOMBSTONES,
        cleaner_names.TOPIC_TOMBSTONES,
        sum,
        lambda each: each.backlog.tombstones_count,
    ),
    Column(
        cleaner_names.TOMBSTONE_BYTES,
        cleaner_names.TOPIC_TOMBSTONE_BYTES,
        sum,
        lambda each: each.backlog.tombstone_bytes,
    ),
    Column(
        cleaner_names.TOMBSTONES_DUE,
        cleaner_names.TOPIC_TOMBSTONES_DUE,
        max,
        lambda each: each.tombstones_due_seconds,
    ),
    Column(
        cleaner_names.SIDECAR_BYTES,
        cleaner_names.TOPIC_SIDECAR_BYTES,
        sum,
        lambda each: each.backlog.key_sidecar_bytes,
    ),
    Column(
        cleaner_names.KEPT_BYTES,
        cleaner_names.TOPIC_KEPT_BYTES,
        sum,
        lambda each: each.facts.kept_bytes,
    ),
    Column(
        cleaner_names.DELETE_HORIZON,
        cleaner_names.TOPIC_HORIZON,
        min,
        lambda each: each.horizon_seconds,
    ),
    Column(
        cleaner_names.RECLAIMED,
        cleaner_names.TOPIC_RECLAIMED,
        sum,
        lambda each: each.bytes_reclaimed,
    ),
)

KAFKA_COLUMNS: tuple[tuple[Metric, Callable[[PartitionFacts], float | None]], ...] = (
    (partition_names.OLDEST_OFFSET, lambda each: each.log_start_offset),
    (partition_names.CURRENT_OFFSET, lambda each: each.high_watermark),
    (partition_names.LOG_START_OFFSET, lambda each: each.log_start_offset),
    (partition_names.LOG_END_OFFSET, lambda each: each.log_end_offset),
    (partition_names.LOG_SIZE, lambda each: each.size_bytes),
    (partition_names.LOG_SEGMENTS, lambda each: each.segments_count),
    (partition_names.LAST_STABLE_LAG, lambda each: each.high_watermark - each.last_stable_offset),
    (partition_names.CLEAN_OFFSET, lambda each: each.clean_offset),
)


def collect_partitions(
    partitions: Sequence[PartitionFacts],
    cleaner: CleanerCounts,
    *,
    node_id: int,
    listed_max: int,
) -> Iterator[Family]:
    """Yields the metrics of partitions and topics; each lists at most `listed_max` of them."""
    used = [each for each in partitions if not each.is_unused]
    listed = heapq.nlargest(listed_max, used, key=lambda each: each.size_bytes)
    yield gauge(broker_names.PARTITIONS_UNLISTED, [((), len(used) - len(listed))])
    for metric, value_of in KAFKA_COLUMNS:
        values = ((_labels(each), value_of(each)) for each in listed)
        yield gauge(metric, ((labels, value) for labels, value in values if value is not None))
    for metric, constant in ((broker_names.PARTITION_LEADER, node_id), *broker_names.ONE_REPLICA):
        yield gauge(metric, ((_labels(each), constant) for each in listed))
    compacted = [_compacted(each, cleaner) for each in partitions if each.backlog is not None]
    for column in COLUMNS:
        yield from _collect_column(column, compacted, listed_max)
    yield from _collect_passes(compacted, listed_max)
    yield from _collect_quarantine(compacted, cleaner, listed_max)
    yield from _collect_fences(compacted, cleaner, listed_max)


def _compacted(facts: PartitionFacts, cleaner: CleanerCounts) -> CompactedPartition:
    assert facts.backlog is not None
    counts = cleaner.partitions.get((facts.topic, facts.partition))
    since = None if counts is None else cleaner.seconds_since_pass(counts)
    return CompactedPartition(facts, facts.backlog, counts, since)


def _labels(facts: PartitionFacts) -> tuple[str, str]:
    return facts.topic, str(facts.partition)


def _collect_column(
    column: Column, partitions: Sequence[CompactedPartition], listed_max: int
) -> Iterator[Family]:
    show = counter if column.by_partition.kind == "counter" else gauge
    # The earliest horizons matter, and only their column combines with `min`.
    pick = heapq.nsmallest if column.combine is min else heapq.nlargest
    valued = [(v, each) for each in partitions if (v := column.value(each)) is not None]
    used = [(value, each) for value, each in valued if not each.facts.is_unused]
    listed = pick(listed_max, used, key=_value)
    yield show(column.by_partition, ((_labels(each.facts), value) for value, each in listed))
    by_topic: dict[str, list[float]] = {}
    for value, each in valued:
        by_topic.setdefault(each.facts.topic, []).append(value)
    topics = [(column.combine(values), topic) for topic, values in by_topic.items()]
    listed_topics = pick(listed_max, topics, key=_value)
    yield show(column.by_topic, (((topic,), value) for value, topic in listed_topics))


def _value(valued: tuple[float, object]) -> float:
    return valued[0]


def _collect_passes(partitions: Sequence[CompactedPartition], listed_max: int) -> Iterator[Family]:
    counted = [(each.facts, each.counts.passes_by_result) for each in partitions if each.counts]
    listed = heapq.nlargest(listed_max, counted, key=lambda each: sum(each[1].values()))
    yield counter(
        cleaner_names.PARTITION_PASSES,
        (
            ((*_labels(facts), result), count)
            for facts, passes in listed
            for result, count in passes.items()
        ),
    )
    by_topic: dict[str, dict[str, int]] = {}
    for facts, passes in counted:
        sums = by_topic.setdefault(facts.topic, dict.fromkeys(passes, 0))
        for result, count in passes.items():
            sums[result] += count
    topics = heapq.nlargest(listed_max, by_topic.items(), key=lambda each: sum(each[1].values()))
    yield counter(
        cleaner_names.TOPIC_PASSES,
        (((topic, result), n) for topic, sums in topics for result, n in sums.items()),
    )


def _collect_quarantine(
    partitions: Sequence[CompactedPartition], cleaner: CleanerCounts, listed_max: int
) -> Iterator[Family]:
    entries = cleaner.quarantine
    quarantined = [
        (entry, each.facts)
        for each in partitions
        if (entry := entries.get((each.facts.topic, each.facts.partition))) is not None
    ]
    listed = heapq.nlargest(listed_max, quarantined, key=lambda each: each[0].failures)
    yield gauge(
        cleaner_names.QUARANTINE_FAILURES,
        (((*_labels(facts), entry.kind), entry.failures) for entry, facts in listed),
    )
    by_topic: dict[str, int] = {}
    for _entry, facts in quarantined:
        by_topic[facts.topic] = by_topic.get(facts.topic, 0) + 1
    topics = heapq.nlargest(listed_max, by_topic.items(), key=lambda each: each[1])
    yield gauge(cleaner_names.TOPIC_QUARANTINED, (((topic,), count) for topic, count in topics))


def _collect_fences(
    partitions: Sequence[CompactedPartition], cleaner: CleanerCounts, listed_max: int
) -> Iterator[Family]:
    fenced = [
        (size, each.facts)
        for each in partitions
        if (size := cleaner.fenced_bytes.get((each.facts.topic, each.facts.partition)))
    ]
    listed = heapq.nlargest(listed_max, fenced, key=_value)
    yield gauge(cleaner_names.FENCED_BYTES, ((_labels(facts), size) for size, facts in listed))
    by_topic = Counter(facts.topic for _size, facts in fenced)
    topics = by_topic.most_common(listed_max)
    yield gauge(cleaner_names.TOPIC_FENCED, (((topic,), count) for topic, count in topics))

"""Metrics of the whole broker at scrape time: its partitions, its event loop, and constants.

Dashboards made for Kafka use the names of its JMX exporter and of kafka_exporter. The broker exports
all of them whose value it knows, also those that are constant with one broker: an empty panel looks
like a fault.

Source: Strimzi's examples/metrics (strimzi-kafka.json, strimzi-kafka-exporter.json, kafka-metrics.yaml),
Kafka's ReplicaManager.scala, KafkaController metrics, LinuxIoMetricsCollector; proc(5), /proc/pid/io.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from prometheus_client.core import Metric as Family

from metrics import broker_names, coordinator_names, partition_names
from metrics.facts import (
    BrokerFacts,
    CheckpointFacts,
    FollowerFacts,
    LinkFacts,
    LoopFacts,
    ReplogFacts,
    SnapshotFacts,
)
from metrics.families import counter, gauge
from metrics.metric import Metric

PROC_IO = Path("/proc/self/io")


def collect_broker(facts: BrokerFacts) -> Iterator[Family]:
    """Yields the broker's metrics except traffic, partitions, groups and the cleaner."""
    yield gauge(broker_names.BUILD_INFO, [((facts.version,), 1)])
    yield gauge(partition_names.BROKERS, [((), 1)])
    yield gauge(broker_names.BROKER_INFO, [((str(facts.node_id), facts.address), 1)])
    yield gauge(broker_names.IS_READY, [((), facts.is_ready)])
    yield gauge(broker_names.IS_FENCED, [((), facts.is_fenced)])
    yield gauge(broker_names.OFFLINE_DIRECTORIES, [((), facts.directories_offline)])
    yield from _collect_partition_counts(facts)
    yield from _collect_loop(facts.loop)
    yield from _collect_disks()
    yield from _collect_snapshots(facts.snapshots)
    yield from _collect_replogs(facts.replogs)
    yield from _collect_followers(facts.followers)
    yield from _collect_links(facts.links)
    yield from _collect_checkpoints(facts.checkpoints)
    for metric, value in broker_names.ONE_BROKER:
        yield (gauge if metric.kind == "gauge" else counter)(metric, [((), value)])


def _collect_partition_counts(facts: BrokerFacts) -> Iterator[Family]:
    by_topic, offline = facts.partitions_by_topic, facts.partitions_offline
    partitions = sum(by_topic.values())
    yield gauge(partition_names.OFFLINE_PARTITIONS, [((), offline)])
    yield gauge(partition_names.OFFLINE_REPLICAS, [((), offline)])
    yield gauge(partition_names.PARTITIONS, [((), partitions)])
    yield gauge(partition_names.LEADERS, [((), partitions - offline)])
    yield gauge(broker_names.GLOBAL_TOPICS, [((), len(by_topic))])
    yield gauge(broker_names.GLOBAL_PARTITIONS, [((), partitions)])
    yield gauge(
        partition_names.TOPIC_PARTITIONS, [((topic,), count) for topic, count in by_topic.items()]
    )
    yield gauge(
        coordinator_names.COORDINATOR_PARTITIONS,
        [
            ((topic, state), count)
            for topic, counts in facts.coordinator_partitions.items()
            for state, count in counts.items()
        ],
    )


def _collect_snapshots(facts: SnapshotFacts) -> Iterator[Family]:
    yield gauge(broker_names.SNAPSHOTS, [((), facts.count)])
    yield gauge(broker_names.SNAPSHOT_BYTES, [((), facts.size_bytes)])
    yield gauge(broker_names.SNAPSHOT_PINNED_BYTES, [((), facts.pinned_bytes)])


def _collect_replogs(replogs: Mapping[str, ReplogFacts]) -> Iterator[Family]:
    logs = replogs.items()
    yield gauge(broker_names.REPLOG_DISK_BYTES, [((log,), each.disk_bytes) for log, each in logs])
    yield gauge(broker_names.REPLOG_BOUND_BYTES, [((log,), each.bound_bytes) for log, each in logs])
    yield gauge(broker_names.REPLOG_LOG_BYTES, [((log,), each.log_bytes) for log, each in logs])
    yield gauge(
        broker_names.REPLOG_SNAPSHOT_BYTES, [((log,), each.snapshot_bytes) for log, each in logs]
    )
    yield gauge(
        broker_names.REPLOG_REPLAY_SECONDS, [((log,), each.replay_seconds) for log, each in logs]
    )
    yield gauge(broker_names.REPLOG_U, [((log,), each.u) for log, each in logs])
    taken = [(log, each.snapshot_seconds) for log, each in logs]
    yield gauge(
        broker_names.REPLOG_SNAPSHOT_SECONDS,
        [((log,), seconds) for log, seconds in taken if seconds is not None],
    )


def _collect_links(links: Mapping[str, LinkFacts]) -> Iterator[Family]:
    rows = links.items()
    yield gauge(broker_names.LINK_UP, [((name,), float(each.is_answered)) for name, each in rows])
    by_label: list[tuple[Metric, Callable[[LinkFacts], Mapping[str, float]]]] = [
        (broker_names.MIRROR_PARTITIONS, lambda link: link.partitions_by_state),
        (broker_names.MIRROR_LAG_OFFSETS, lambda link: link.lag_offsets),
        (broker_names.MIRROR_LAG_SECONDS, lambda link: link.lag_seconds),
    ]
    for metric, values_of in by_label:
        found = ((name, values_of(each)) for name, each in rows)
        yield gauge(
            metric,
            [((name, label), value) for name, values in found for label, value in values.items()],
        )
    totals: list[tuple[Metric, Callable[[LinkFacts], int]]] = [
        (broker_names.MIRROR_COPIED, lambda link: link.copied_bytes_total),
        (broker_names.MIRROR_FAILED_ATTEMPTS, lambda link: link.failed_attempts_total),
        (broker_names.MIRROR_CUT, lambda link: link.cut_offsets_total),
        (broker_names.MIRROR_SKIPPED, lambda link: link.skipped_offsets_total),
        (broker_names.MIRROR_RESYNCS_STARTED, lambda link: link.resyncs_started_total),
        (broker_names.MIRROR_RESYNCS_COMPLETED, lambda link: link.resyncs_completed_total),
    ]
    for metric, total_of in totals:
        yield counter(metric, [((name,), total_of(each)) for name, each in rows])


def _collect_followers(followers: Sequence[FollowerFacts]) -> Iterator[Family]:
    yield gauge(broker_names.FOLLOWER_LAG, [((f.id,), f.lag_entries) for f in followers])
    copies = [((f.id, each.name), each) for f in followers for each in f.copies]
    yield gauge(broker_names.FOLLOWER_COPY_LAG, [(id_, each.lag_offsets) for id_, each in copies])
    yield gauge(
        broker_names.FOLLOWER_COPY_SEEN, [(id_, each.seen_seconds_ago) for id_, each in copies]
    )
    yield counter(
        broker_names.FOLLOWER_COPY_CHECKPOINTS, [(id_, each.checkpoints) for id_, each in copies]
    )
    yield gauge(broker_names.FOLLOWER_SEEN, [((f.id,), f.seen_seconds_ago) for f in followers])
    yield counter(broker_names.FOLLOWER_INSTALLS, [((f.id,), f.installs) for f in followers])


def _collect_checkpoints(
    checkpoints: Mapping[tuple[str, str], CheckpointFacts],
) -> Iterator[Family]:
    for metric, value in (
        (coordinator_names.CHECKPOINT_BYTES, attrgetter("size")),
        (coordinator_names.CHECKPOINT_END, attrgetter("end_offset")),
        (coordinator_names.CHECKPOINT_REPLAY, attrgetter("replay_seconds")),
        (coordinator_names.CHECKPOINT_SECONDS, attrgetter("seconds")),
    ):
        values = [(place, value(each)) for place, each in checkpoints.items()]
        yield gauge(metric, [(place, number) for place, number in values if number is not None])


def _collect_loop(loop: LoopFacts) -> Iterator[Family]:
    stall = loop.longest_stall
    yield gauge(
        broker_names.LOOP_STALL,
        [((stall.api, "wall"), stall.seconds), ((stall.api, "cpu"), stall.cpu_seconds)],
    )
    yield counter(broker_names.LOOP_STALLS, [((api,), n) for api, n in loop.stalls_by_api.items()])
    yield counter(broker_names.LOOP_BUSY, [((), loop.busy_seconds)])
    for metric in broker_names.IDLE_NAMES:
        yield gauge(metric, [((), loop.idle_share)])


def _collect_disks() -> Iterator[Family]:
    counts = disk_bytes()
    if counts is not None:
        yield gauge(broker_names.DISK_READ, [((), counts[0])])
        yield gauge(broker_names.DISK_WRITTEN, [((), counts[1])])


def disk_bytes(path: Path = PROC_IO) -> tuple[int, int] | None:
    """Returns bytes read from and written to disks; None if the kernel has no counts. Any thread."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return None
    counts = dict(line.split(": ", 1) for line in lines)
    return int(counts["read_bytes"]), int(counts["write_bytes"])

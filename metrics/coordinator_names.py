"""Metrics of the coordinators: consumer groups and transactions."""

from __future__ import annotations

from metrics.metric import Metric

# Consumer groups: kafka_exporter's names, and Kafka's names for the coordinator.
GROUP_OFFSET = Metric.gauge(
    "kafka_consumergroup_current_offset",
    "Offset that a group has committed.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG = Metric.gauge(
    "kafka_consumergroup_lag",
    "Offsets between a group's committed offset and the high watermark.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_OFFSET_SUM = Metric.gauge(
    "kafka_consumergroup_current_offset_sum",
    "Offsets that a group has committed, summed over a topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG_SUM = Metric.gauge(
    "kafka_consumergroup_lag_sum",
    "A group's lag, summed over a topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_RECORD_LAG = Metric.gauge(
    "kompakt_group_record_lag",
    "Records that are really between a group's committed offset and the high watermark; estimated"
    " within a segment that a pass has rewritten, and 0 at the end.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_RECORD_LAG_SUM = Metric.gauge(
    "kompakt_group_record_lag_sum",
    "A group's lag in records, summed over a topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_MEMBERS = Metric.gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
GROUPS = Metric.gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups.")
COMMITTED_OFFSETS = Metric.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numoffsets", "Committed offsets."
)
GROUPS_EMPTY = Metric.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty", "Groups without members."
)
GROUPS_PREPARING = Metric.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "Groups whose members are joining.",
)
GROUPS_COMPLETING = Metric.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "Groups that wait for the assignment of their leader.",
)
GROUPS_STABLE = Metric.gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable", "Groups with an assignment."
)
GROUPS_BY_STATE = {
    "Empty": GROUPS_EMPTY,
    "PreparingRebalance": GROUPS_PREPARING,
    "CompletingRebalance": GROUPS_COMPLETING,
    "Stable": GROUPS_STABLE,
}
"""The metrics of classic groups by state."""
GROUPS_BY_PROTOCOL = Metric.gauge(
    "kafka_server_group_coordinator_metrics_group_count", "Groups by protocol.", "protocol"
)
CONSUMER_GROUPS_BY_STATE = Metric.gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of the consumer protocol by state.",
    "state",
)
SLOTS_INVALIDATED = Metric.counter(
    "kompakt_slots_invalidated_total",
    "Committed offsets that no longer hold tombstones, because they have not moved for"
    " compaction.hold.max.ms.",
)
COORDINATOR_PARTITIONS = Metric.gauge(
    "kompakt_coordinator_partitions",
    "Partitions of a coordinator's topic, by state: loading, active, or failed to load.",
    "topic",
    "state",
)
GROUP_PROTOCOLS = ("classic", "consumer")
CONSUMER_GROUP_STATES = ("Empty", "Assigning", "Reconciling", "Stable")

# Transactions.
TRANSACTIONAL_IDS = Metric.gauge(
    "kompakt_transactional_ids", "Transactional ids by the state of their transaction.", "state"
)
OLDEST_TRANSACTION = Metric.gauge(
    "kompakt_transaction_oldest_open_seconds",
    "Age of the oldest open transaction; 0 if none is open.",
)
TRANSACTIONS_ENDED = Metric.counter(
    "kompakt_transactions_ended_total", "Transactions that were committed or aborted.", "outcome"
)
TRANSACTIONS_TIMED_OUT = Metric.counter(
    "kompakt_transactions_timed_out_total",
    "Transactions aborted because they exceeded their timeout.",
)

# Checkpoints of the coordinators' partitions, which save a start from reading their whole logs.
CHECKPOINT_BYTES = Metric.gauge(
    "kompakt_coordinator_checkpoint_bytes", "Bytes of the last checkpoint.", "topic", "partition"
)
CHECKPOINT_END = Metric.gauge(
    "kompakt_coordinator_checkpoint_end_offset",
    "Offset up to which the checkpoint holds the partition's state.",
    "topic",
    "partition",
)
CHECKPOINT_REPLAY = Metric.gauge(
    "kompakt_coordinator_replay_seconds",
    "Estimated load of the log after the checkpoint or the clean offset at the next start.",
    "topic",
    "partition",
)
CHECKPOINT_SECONDS = Metric.gauge(
    "kompakt_coordinator_checkpoint_seconds",
    "How long the last checkpoint took.",
    "topic",
    "partition",
)

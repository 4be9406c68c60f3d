"""Metrics of partitions: offsets, sizes, and which are in service."""

from __future__ import annotations

from metrics.metric import Metric

# Partitions.
BROKERS = Metric.gauge("kafka_brokers", "Brokers of the cluster: 1, this one.")
TOPIC_PARTITIONS = Metric.gauge("kafka_topic_partitions", "Partitions of a topic.", "topic")
OLDEST_OFFSET = Metric.gauge(
    "kafka_topic_partition_oldest_offset", "Log start offset.", "topic", "partition"
)
CURRENT_OFFSET = Metric.gauge(
    "kafka_topic_partition_current_offset", "High watermark.", "topic", "partition"
)
LOG_START_OFFSET = Metric.gauge(
    "kafka_log_log_logstartoffset", "Log start offset.", "topic", "partition"
)
LOG_END_OFFSET = Metric.gauge("kafka_log_log_logendoffset", "Log end offset.", "topic", "partition")
LOG_SIZE = Metric.gauge("kafka_log_log_size", "Bytes of a log's segments.", "topic", "partition")
LOG_SEGMENTS = Metric.gauge(
    "kafka_log_log_numlogsegments", "Segments of a log.", "topic", "partition"
)
LAST_STABLE_LAG = Metric.gauge(
    "kafka_cluster_partition_laststableoffsetlag",
    "Offsets below the high watermark that read_committed consumers and the cleaner cannot pass"
    " because a transaction is open. kompakt transactions lists it.",
    "topic",
    "partition",
)
CLEAN_OFFSET = Metric.gauge(
    "kompakt_log_clean_offset",
    "Clean offset: a pass has cleaned everything below it at least once.",
    "topic",
    "partition",
)
OFFLINE_PARTITIONS = Metric.gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions out of service."
)
PARTITIONS = Metric.gauge("kafka_server_replicamanager_partitioncount", "Partitions of the broker.")
OFFLINE_REPLICAS = Metric.gauge(
    "kafka_server_replicamanager_offlinereplicacount", "Partitions out of service."
)
LEADERS = Metric.gauge(
    "kafka_server_replicamanager_leadercount", "Partitions in service, all led by this broker."
)

"""The table of all metrics: names, kinds, help texts and labels.

Names that begin with `kafka_` are those of kafka_exporter and of Kafka's JMX exporter, so that
dashboards made for Kafka also show a Kompakt broker; the others are ours. Sizes are in bytes and times
in seconds, as Prometheus recommends, except where a Kafka name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: `name` is the name in a scrape, without the suffixes of histograms."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Metric:
    assert name.endswith("_total")
    return Metric(name=name, kind="counter", help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind="gauge", help=text, labels=labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind="histogram", help=text, labels=labels)


# What clients send and read.
RECORDS_IN = _counter(
    "kafka_server_brokertopicmetrics_messagesin_total", "Records appended.", "topic"
)
BYTES_IN = _counter(
    "kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches appended.", "topic"
)
BYTES_OUT = _counter(
    "kafka_server_brokertopicmetrics_bytesout_total", "Bytes of batches sent.", "topic"
)
RECORDS_REFUSED = _counter(
    "kompakt_records_refused_total", "Records refused, by error code.", "topic", "reason"
)
SEGMENTS_DELETED = _counter(
    "kompakt_segments_deleted_total",
    "Segments deleted because of their age, a log's size or its start.",
    "topic",
    "reason",
)
BYTES_DELETED = _counter(
    "kompakt_segments_deleted_bytes_total", "Bytes of deleted segments.", "topic", "reason"
)

# Requests and connections.
REQUEST_SECONDS = _histogram(
    "kompakt_request_seconds", "Time from a request's frame to its response.", "api"
)
CONNECTIONS = _gauge("kompakt_connections", "Open connections.", "listener")
CONNECTIONS_OPENED = _counter(
    "kompakt_connections_opened_total", "Connections accepted.", "listener"
)
CONNECTIONS_REFUSED = _counter(
    "kompakt_connections_refused_total", "Connections closed because of a limit.", "listener"
)
CONNECTIONS_DELAYED = _counter(
    "kompakt_connections_delayed_total",
    "Connections that had to wait because of a bound on their rate.",
    "listener",
)
CONNECTIONS_DELAYED_SECONDS = _counter(
    "kompakt_connections_delayed_seconds_total", "Time for which they had to wait.", "listener"
)
PROTOCOL_ERRORS = _counter(
    "kompakt_protocol_errors_total",
    "Connections closed because the client violated the protocol.",
    "listener",
)
CERTIFICATE_EXPIRY = _gauge(
    "kompakt_certificate_expiry_seconds",
    "Seconds until the certificate of a listener expires; negative once it has.",
    "listener",
)
TLS_HANDSHAKES_FAILED = _counter(
    "kompakt_tls_handshakes_failed_total",
    "Connections closed because their TLS handshake failed.",
    "listener",
)
NETWORK_RECEIVED = _counter("kompakt_network_received_bytes_total", "Bytes of requests.")
NETWORK_SENT = _counter("kompakt_network_sent_bytes_total", "Bytes of responses.")

REQUESTS = _counter("kafka_network_requestmetrics_requests_total", "Requests answered.", "request")
REQUEST_TIME = _gauge(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from a request's frame to its response, by quantile, in the last five minutes.",
    "request",
    "quantile",
)
CONNECTION_COUNT = _gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections; there is one network processor.",
    "listener",
    "networkProcessor",
)
_LOGIN_LABELS = ("listener", "networkProcessor", "mechanism")
LOGINS = _counter(
    "kafka_server_socket_server_metrics_successful_authentication_total",
    "Successful logins.",
    *_LOGIN_LABELS,
)
LOGINS_FAILED = _counter(
    "kafka_server_socket_server_metrics_failed_authentication_total",
    "Refused logins.",
    *_LOGIN_LABELS,
)
LOGINS_AGAIN = _counter(
    "kafka_server_socket_server_metrics_successful_reauthentication_total",
    "Successful logins of clients that were authenticated before.",
    *_LOGIN_LABELS,
)
LOGINS_AGAIN_FAILED = _counter(
    "kafka_server_socket_server_metrics_failed_reauthentication_total",
    "Refused logins of clients that were authenticated before.",
    *_LOGIN_LABELS,
)
SESSIONS_EXPIRED = _counter(
    "kafka_server_socket_server_metrics_expired_connections_killed_count_total",
    "Connections closed because the client did not authenticate again in time.",
    "listener",
    "networkProcessor",
)
PRODUCES = _counter(
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "Batches in produce requests, appended or refused.",
    "topic",
)
PRODUCES_FAILED = _counter(
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "Batches of produce requests that were refused, for any reason.",
    "topic",
)
FETCHES = _counter(
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "Partitions in answered fetch requests.",
    "topic",
)
FETCHES_FAILED = _counter(
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "Partitions in fetch requests that were answered with an error.",
    "topic",
)

# Logs of state machines, which snapshots bound: metadata.
REPLOG_DISK_BYTES = _gauge(
    "kompakt_replog_disk_bytes", "Bytes of a state machine's log and snapshots.", "log"
)
REPLOG_BOUND_BYTES = _gauge(
    "kompakt_replog_disk_bound_bytes", "The most bytes that these may take, by u.", "log"
)
REPLOG_LOG_BYTES = _gauge(
    "kompakt_replog_log_bytes", "Bytes of the entries after the last snapshot.", "log"
)
REPLOG_SNAPSHOT_BYTES = _gauge(
    "kompakt_replog_snapshot_bytes", "Bytes of the last snapshot.", "log"
)
REPLOG_REPLAY_SECONDS = _gauge(
    "kompakt_replog_replay_seconds", "Estimated replay of the log at the next start.", "log"
)
REPLOG_SNAPSHOT_SECONDS = _gauge(
    "kompakt_replog_snapshot_seconds", "How long the last snapshot took.", "log"
)
REPLOG_U = _gauge(
    "kompakt_replog_u", "Snapshot bytes that may be written for a byte of log.", "log"
)

# Checkpoints of the coordinators' partitions, which save a start from reading their whole logs.
CHECKPOINT_BYTES = _gauge(
    "kompakt_coordinator_checkpoint_bytes", "Bytes of the last checkpoint.", "topic", "partition"
)
CHECKPOINT_END = _gauge(
    "kompakt_coordinator_checkpoint_end_offset",
    "Offset up to which the checkpoint holds the partition's state.",
    "topic",
    "partition",
)
CHECKPOINT_REPLAY = _gauge(
    "kompakt_coordinator_replay_seconds",
    "Estimated load of the log after the checkpoint or the clean offset at the next start.",
    "topic",
    "partition",
)
CHECKPOINT_SECONDS = _gauge(
    "kompakt_coordinator_checkpoint_seconds",
    "How long the last checkpoint took.",
    "topic",
    "partition",
)

# Quotas of clients. Of the clients that have a quota, a metric lists those that were active last.
THROTTLES = _counter(
    "kompakt_throttles_total", "Requests after which a client had to pause, by quota.", "quota"
)
THROTTLE_SECONDS = _counter(
    "kompakt_throttle_seconds_total", "Time for which clients had to pause, by quota.", "quota"
)
QUOTA_ENTITIES = _gauge("kompakt_quota_entities", "Entities that have quotas.")
PRODUCE_RATE = _gauge(
    "kafka_server_produce_byte_rate",
    "Bytes of produce requests a second of a client with a quota.",
    "user",
    "client_id",
)
FETCH_RATE = _gauge(
    "kafka_server_fetch_byte_rate",
    "Bytes fetched a second by a client with a quota.",
    "user",
    "client_id",
)
LOOP_SHARE = _gauge(
    "kafka_server_request_request_time",
    "Percentage of the event loop's time that a client with a quota uses.",
    "user",
    "client_id",
)
MUTATION_TOKENS = _gauge(
    "kafka_server_controllermutation_tokens",
    "Partitions that a client with a quota may still create or delete.",
    "user",
    "client_id",
)
QUOTA_USES = {
    "producer_byte_rate": PRODUCE_RATE,
    "consumer_byte_rate": FETCH_RATE,
    "request_percentage": LOOP_SHARE,
    "controller_mutation_rate": MUTATION_TOKENS,
}
"""By quota, the metric of what clients use of it."""

# The event loop: it is the network processor and the request handler.
LOOP_STALL = _gauge(
    "kompakt_loop_longest_stall_seconds",
    "Longest stall of the event loop in the last one to two minutes, by the wall clock and by the"
    " processor time of its thread. The API names the request that held the loop.",
    "api",
    "clock",
)
LOOP_STALLS = _counter(
    "kompakt_loop_stalls_total", "Stalls of the event loop of 100 ms or more.", "api"
)
LOOP_BUSY = _counter(
    "kompakt_loop_busy_seconds_total", "Processor time of the event loop's thread."
)
_IDLE = "Fraction of the last minute, from 0 to 1, in which the event loop's thread was idle."
IDLE_NAMES = (
    _gauge("kafka_network_socketserver_networkprocessoravgidle_percent", _IDLE),
    _gauge("kafka_network_socketserver_networkprocessoravgidlepercent", _IDLE),
    _gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", _IDLE),
    _gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", _IDLE),
)
"""As the JMX exporter's rules name them, with and without the underscore."""

BACKGROUND_FAILURES = _counter(
    "kompakt_background_failures_total",
    "Unexpected failures of background work: bugs to report.",
    "work",
)

# The disk.
DISK_READ = _gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "Bytes that this process has read from disks (/proc/self/io).",
)
DISK_WRITTEN = _gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "Bytes that this process has written to disks (/proc/self/io).",
)
SYNC_SECONDS = _histogram("kompakt_sync_round_seconds", "Duration of a sync round.")
COLD_READS = _counter(
    "kompakt_cold_reads_total",
    "Reads that the page cache could not serve, so that a thread read the disk.",
)
LOGS_SYNCED = _counter("kompakt_logs_synced_total", "Logs that sync rounds made durable.")
FREE_BYTES = _gauge(
    "kompakt_log_directory_free_bytes", "Free bytes of a log directory's disk.", "directory"
)
OFFLINE_DIRECTORIES = _gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories out of service."
)

# Recovery after a crash.
LOGS_RECOVERED = _counter("kompakt_recovery_logs_total", "Logs that the start recovered.")
RECOVERY_SCANNED = _counter(
    "kompakt_recovery_scanned_bytes_total", "Sound bytes that the start found by scanning."
)
RECOVERY_CUT = _counter(
    "kompakt_recovery_cut_bytes_total",
    "Unsound bytes, and the bytes after them, that the start cut off logs.",
)
RECOVERY_CUT_FILES = _counter(
    "kompakt_recovery_cut_files_total", "Files that keep the bytes that the start cut off logs."
)

# Consumer groups: kafka_exporter's names, and Kafka's names for the coordinator.
GROUP_OFFSET = _gauge(
    "kafka_consumergroup_current_offset",
    "Offset that a group has committed.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG = _gauge(
    "kafka_consumergroup_lag",
    "Records between a group's committed offset and the high watermark.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_OFFSET_SUM = _gauge(
    "kafka_consumergroup_current_offset_sum",
    "Offsets that a group has committed, summed over a topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG_SUM = _gauge(
    "kafka_consumergroup_lag_sum",
    "A group's lag, summed over a topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_MEMBERS = _gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
GROUPS = _gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups.")
COMMITTED_OFFSETS = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numoffsets", "Committed offsets."
)
GROUPS_EMPTY = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty", "Groups without members."
)
GROUPS_PREPARING = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "Groups whose members are joining.",
)
GROUPS_COMPLETING = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "Groups that wait for the assignment of their leader.",
)
GROUPS_STABLE = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable", "Groups with an assignment."
)
GROUPS_BY_STATE = {
    "Empty": GROUPS_EMPTY,
    "PreparingRebalance": GROUPS_PREPARING,
    "CompletingRebalance": GROUPS_COMPLETING,
    "Stable": GROUPS_STABLE,
}
"""The metrics of classic groups by state."""
GROUPS_BY_PROTOCOL = _gauge(
    "kafka_server_group_coordinator_metrics_group_count", "Groups by protocol.", "protocol"
)
CONSUMER_GROUPS_BY_STATE = _gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of the consumer protocol by state.",
    "state",
)
COORDINATOR_PARTITIONS = _gauge(
    "kompakt_coordinator_partitions",
    "Partitions of a coordinator's topic, by state: loading, active, or failed to load.",
    "topic",
    "state",
)
GROUP_PROTOCOLS = ("classic", "consumer")
CONSUMER_GROUP_STATES = ("Empty", "Assigning", "Reconciling", "Stable")

# Transactions.
TRANSACTIONAL_IDS = _gauge(
    "kompakt_transactional_ids", "Transactional ids by the state of their transaction.", "state"
)
OLDEST_TRANSACTION = _gauge(
    "kompakt_transaction_oldest_open_seconds",
    "Age of the oldest open transaction; 0 if none is open.",
)
TRANSACTIONS_ENDED = _counter(
    "kompakt_transactions_ended_total", "Transactions that were committed or aborted.", "outcome"
)
TRANSACTIONS_TIMED_OUT = _counter(
    "kompakt_transactions_timed_out_total",
    "Transactions aborted because they exceeded their timeout.",
)

# Partitions.
BROKERS = _gauge("kafka_brokers", "Brokers of the cluster: 1, this one.")
TOPIC_PARTITIONS = _gauge("kafka_topic_partitions", "Partitions of a topic.", "topic")
OLDEST_OFFSET = _gauge(
    "kafka_topic_partition_oldest_offset", "Log start offset.", "topic", "partition"
)
CURRENT_OFFSET = _gauge(
    "kafka_topic_partition_current_offset", "High watermark.", "topic", "partition"
)
LOG_START_OFFSET = _gauge("kafka_log_log_logstartoffset", "Log start offset.", "topic", "partition")
LOG_END_OFFSET = _gauge("kafka_log_log_logendoffset", "Log end offset.", "topic", "partition")
LOG_SIZE = _gauge("kafka_log_log_size", "Bytes of a log's segments.", "topic", "partition")
LOG_SEGMENTS = _gauge("kafka_log_log_numlogsegments", "Segments of a log.", "topic", "partition")
LAST_STABLE_LAG = _gauge(
    "kafka_cluster_partition_laststableoffsetlag",
    "Offsets below the high watermark that read_committed consumers and the cleaner cannot pass"
    " because a transaction is open. kompakt transactions lists it.",
    "topic",
    "partition",
)
CLEAN_OFFSET = _gauge(
    "kompakt_log_clean_offset",
    "Clean offset: a pass has cleaned everything below it at least once.",
    "topic",
    "partition",
)
OFFLINE_PARTITIONS = _gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions out of service."
)
PARTITIONS = _gauge("kafka_server_replicamanager_partitioncount", "Partitions of the broker.")
OFFLINE_REPLICAS = _gauge(
    "kafka_server_replicamanager_offlinereplicacount", "Partitions out of service."
)
LEADERS = _gauge(
    "kafka_server_replicamanager_leadercount", "Partitions in service, all led by this broker."
)

# Constants of a single broker, which leads all partitions and has their only replicas.
ONE_BROKER: tuple[tuple[Metric, float], ...] = (
    (_gauge("kafka_controller_kafkacontroller_activecontrollercount", "1: it controls itself."), 1),
    (_gauge("kafka_controller_kafkacontroller_activebrokercount", "1: this broker."), 1),
    (_gauge("kafka_controller_kafkacontroller_fencedbrokercount", "0: there is no other."), 0),
    (
        _gauge(
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "0: every leader is the preferred one.",
        ),
        0,
    ),
    (
        _counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "0: no leader was ever elected.",
        ),
        0,
    ),
    (
        _gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "0: every partition has the one replica that it should have.",
        ),
        0,
    ),
    (
        _gauge(
            "kafka_server_replicamanager_underminisrpartitioncount",
            "0: with one replica, one in sync is enough, whatever min.insync.replicas says.",
        ),
        0,
    ),
    (_counter("kafka_server_replicamanager_isrshrinks_total", "0: sets of one never shrink."), 0),
    (_counter("kafka_server_replicamanager_isrexpands_total", "0: sets of one never expand."), 0),
)
ONE_REPLICA: tuple[tuple[Metric, float], ...] = tuple(
    (_gauge(name, text, "topic", "partition"), value)
    for name, text, value in (
        ("kafka_topic_partition_replicas", "1: replicas of a partition.", 1),
        ("kafka_topic_partition_in_sync_replica", "1: replicas in sync.", 1),
        ("kafka_topic_partition_under_replicated_partition", "0: not under-replicated.", 0),
        ("kafka_topic_partition_leader_is_preferred", "1: its leader is the preferred one.", 1),
        ("kafka_cluster_partition_replicascount", "1: replicas of a partition.", 1),
        ("kafka_cluster_partition_insyncreplicascount", "1: replicas in sync.", 1),
        ("kafka_cluster_partition_underreplicated", "0: not under-replicated.", 0),
        ("kafka_cluster_partition_atminisr", "1: the one replica in sync is all it needs.", 1),
        ("kafka_cluster_partition_underminisr", "0: it has the one replica that it needs.", 0),
    )
)
PARTITION_LEADER = _gauge(
    "kafka_topic_partition_leader",
    "node.id of a partition's leader: this broker.",
    "topic",
    "partition",
)
GLOBAL_TOPICS = _gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics.")
GLOBAL_PARTITIONS = _gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions.")
BROKER_INFO = _gauge(
    "kafka_broker_info", "1; the labels say how clients know this broker.", "id", "address"
)
PARTITIONS_UNLISTED = _gauge(
    "kompakt_partitions_unlisted",
    "Partitions in use beyond metrics.partitions.max, which Kafka's metrics by partition do not list.",
)

# Compacted partitions, and their topics: a sum, or the value of the worst partition.
DIRTY_BYTES = _gauge(
    "kompakt_log_dirty_bytes",
    "Bytes that no pass has cleaned, including the active segment's.",
    "topic",
    "partition",
)
TOPIC_DIRTY_BYTES = _gauge("kompakt_topic_dirty_bytes", "Dirty bytes of a topic.", "topic")
CLEANABLE_BYTES = _gauge(
    "kompakt_log_cleanable_bytes", "Dirty bytes that a pass could clean now.", "topic", "partition"
)
TOPIC_CLEANABLE_BYTES = _gauge(
    "kompakt_topic_cleanable_bytes", "Cleanable bytes of a topic.", "topic"
)
DIRTY_RATIO = _gauge(
    "kompakt_log_dirty_ratio",
    "Cleanable bytes over clean plus cleanable bytes; the cleaner compares it with"
    " min.cleanable.dirty.ratio.",
    "topic",
    "partition",
)
TOPIC_DIRTY_RATIO = _gauge(
    "kompakt_topic_dirty_ratio_max", "Dirty ratio of a topic's dirtiest partition.", "topic"
)
OFFSET_LAG = _gauge(
    "kompakt_log_clean_offset_lag",
    "Offsets between the clean offset and the log's end.",
    "topic",
    "partition",
)
TOPIC_OFFSET_LAG = _gauge(
    "kompakt_topic_clean_offset_lag", "Clean offset lag, summed over a topic's partitions.", "topic"
)
OVERDUE = _gauge(
    "kompakt_log_overdue_seconds",
    "Time by which the oldest dirty record has outlived max.compaction.lag.ms.",
    "topic",
    "partition",
)
TOPIC_OVERDUE = _gauge(
    "kompakt_topic_overdue_seconds_max",
    "Overdue seconds of a topic's most overdue partition.",
    "topic",
)
SINCE_PASS = _gauge(
    "kompakt_log_seconds_since_pass",
    "Time since the last completed pass; absent until the first pass after a start.",
    "topic",
    "partition",
)
TOPIC_SINCE_PASS = _gauge(
    "kompakt_topic_seconds_since_pass_max",
    "Time since the last completed pass over the topic's partition that has waited longest.",
    "topic",
)
TOMBSTONES = _gauge(
    "kompakt_log_tombstones",
    "Tombstones in segments that a pass has counted.",
    "topic",
    "partition",
)
TOPIC_TOMBSTONES = _gauge("kompakt_topic_tombstones", "Tombstones of a topic.", "topic")
SIDECAR_BYTES = _gauge(
    "kompakt_log_key_sidecar_bytes",
    "Bytes of the key sidecars beside a log's segments, which kafka_log_log_size does not include.",
    "topic",
    "partition",
)
TOPIC_SIDECAR_BYTES = _gauge(
    "kompakt_topic_key_sidecar_bytes", "Bytes of a topic's key sidecars.", "topic"
)
DELETE_HORIZON = _gauge(
    "kompakt_log_delete_horizon_timestamp_seconds",
    "Unix time at which the log's earliest tombstone or marker may go.",
    "topic",
    "partition",
)
TOPIC_HORIZON = _gauge(
    "kompakt_topic_delete_horizon_timestamp_seconds_min",
    "Earliest delete horizon of a topic.",
    "topic",
)
RECLAIMED = _counter(
    "kompakt_log_reclaimed_bytes_total",
    "Bytes that completed passes freed.",
    "topic",
    "partition",
)
TOPIC_RECLAIMED = _counter(
    "kompakt_topic_reclaimed_bytes_total", "Reclaimed bytes of a topic.", "topic"
)
PARTITION_PASSES = _counter(
    "kompakt_log_passes_total",
    "Passes over a log, by result.",
    "topic",
    "partition",
    "result",
)
TOPIC_PASSES = _counter(
    "kompakt_topic_passes_total",
    "Passes over a topic's logs, by result.",
    "topic",
    "result",
)
QUARANTINE_FAILURES = _gauge(
    "kompakt_log_quarantine_failures",
    "Passes over a log in quarantine that failed in a row; the reason is the kind of error.",
    "topic",
    "partition",
    "reason",
)
TOPIC_QUARANTINED = _gauge(
    "kompakt_topic_quarantined_partitions", "Partitions of a topic in quarantine.", "topic"
)

# The cleaner.
PASSES = _counter(
    "kompakt_cleaner_passes_total", "Cleaning passes: completed, aborted, failed.", "result"
)
PASS_SECONDS = _histogram("kompakt_cleaner_pass_seconds", "Duration of a completed pass.")
PASSES_RUNNING = _gauge("kompakt_cleaner_passes_running", "Cleaning passes that are running.")
CLEANER_LEASES = _gauge(
    "kompakt_cleaner_leases", "Logs that other processes have leased for cleaning."
)
OLDEST_PASS = _gauge(
    "kompakt_cleaner_oldest_pass_seconds",
    "Age of the oldest running pass; a pass that runs for hours is stuck or starved.",
)
CLEANER_BUSY = _counter(
    "kompakt_cleaner_busy_seconds_total",
    "Time that cleaner threads have spent in passes, including running ones and throttled time.",
)
CLEANER_THREADS = _gauge("kompakt_cleaner_threads", "Passes that may run at the same time.")
CLEANER_READ = _counter(
    "kompakt_cleaner_read_bytes_total",
    "Bytes that passes read: segments, key sidecars, and the outputs that they verify.",
)
CLEANER_WRITTEN = _counter(
    "kompakt_cleaner_written_bytes_total", "Bytes of segments and key sidecars that passes wrote."
)
CLEANER_RECORDS = _counter(
    "kompakt_cleaner_records_total", "Records that passes kept or dropped, by reason.", "verdict"
)
CLEANER_RECLAIMED = _counter(
    "kompakt_cleaner_reclaimed_bytes_total", "Bytes that completed passes freed."
)
CLEANER_UNTOUCHED_BYTES = _counter(
    "kompakt_cleaner_untouched_bytes_total",
    "Bytes of segments that passes left untouched, because nothing in them changes.",
)
CLEANER_UNTOUCHED_SEGMENTS = _counter(
    "kompakt_cleaner_untouched_segments_total", "Segments that passes left untouched."
)
CLEANER_SIDECARS = _counter(
    "kompakt_cleaner_key_sidecars_made_total",
    "Key sidecars that passes made by reading a segment that had none or an unusable one.",
)
CLEANER_MAP_PARTS = _gauge(
    "kompakt_cleaner_map_parts_max",
    "Largest number of parts in which a thread's last pass mapped its keys; 1: they fit at once.",
)
CLEANER_VERIFIED = _counter(
    "kompakt_cleaner_verify_seconds_total", "Time that passes spent verifying their output."
)
CLEANER_THROTTLED = _counter(
    "kompakt_cleaner_throttled_seconds_total", "Time that workers slept because of the I/O budget."
)
CLEANER_GUARD_RATE = _gauge(
    "kompakt_cleaner_guard_bytes_per_second",
    "Rate at which the latency guard lets passes read and write; +Inf while it does not limit them.",
)
CLEANER_GUARD_QUIET = _gauge(
    "kompakt_cleaner_guard_quiet_p99_seconds",
    "99th percentile of produce times in quiet time, with which the latency guard compares.",
)
CLEANER_WORKER_FAILURES = _counter(
    "kompakt_cleaner_worker_failures_total",
    "Exceptions in cleaner workers outside of any pass.",
)
# Kafka's names for the cleaner, with Kafka's meanings.
MAX_BUFFER_UTILIZATION = _gauge(
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "Fill level of the fullest offset map of the threads' last passes, in percent of its memory.",
)
RECOPY_PERCENT = _gauge(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "Percentage of the bytes recopied by the threads' last passes that were written again.",
)
MAX_CLEAN_TIME = _gauge(
    "kafka_log_logcleaner_max_clean_time_secs",
    "Duration of the longest of the threads' last passes.",
)
DEAD_THREADS = _gauge("kafka_log_logcleaner_deadthreadcount", "Cleaner workers that have ended.")
UNCLEANABLE_PARTITIONS = _gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions in quarantine, by log directory.",
    "logDirectory",
)
UNCLEANABLE_BYTES = _gauge(
    "kafka_log_logcleanermanager_uncleanable_bytes",
    "Cleanable bytes of the partitions in quarantine, by log directory.",
    "logDirectory",
)
MAX_DIRTY_PERCENT = _gauge(
    "kafka_log_logcleanermanager_max_dirty_percent", "Dirty ratio of the dirtiest log, in percent."
)
MAX_COMPACTION_DELAY = _gauge(
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "Time by which the oldest dirty record of all logs has outlived max.compaction.lag.ms.",
)
DISK_PRESSURE = _gauge(
    "kompakt_cleaner_directories_short_of_space",
    "Log directories with less free space than log.cleaner.disk.pressure.free.bytes, for which the"
    " cleaner hurries.",
)
OVERDUE_PARTITIONS = _gauge(
    "kompakt_cleaner_overdue_partitions",
    "Partitions with a dirty record that has outlived max.compaction.lag.ms.",
)
TIME_SINCE_LAST_RUN = _gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "Time since the cleaner last looked for work, in ms.",
)

# The broker.
BUILD_INFO = _gauge("kompakt_build_info", "1; the label is the version that runs.", "version")
IS_READY = _gauge("kompakt_ready", "Whether the broker serves: recovered, listening, not stopping.")

METRICS: tuple[Metric, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Metric)),
    *IDLE_NAMES,
    *(metric for metric, _ in ONE_BROKER + ONE_REPLICA),
)
assert len({metric.name for metric in METRICS}) == len(METRICS)

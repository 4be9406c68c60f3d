"""Metrics of the broker itself: its event loop, its disk, its start, and what a single broker fixes."""

from __future__ import annotations

from metrics.metric import Metric

# The event loop: it is the network processor and the request handler.
LOOP_STALL = Metric.gauge(
    "kompakt_loop_longest_stall_seconds",
    "Longest stall of the event loop in the last one to two minutes, by the wall clock and by the"
    " processor time of its thread. The API names the request that held the loop.",
    "api",
    "clock",
)
LOOP_STALLS = Metric.counter(
    "kompakt_loop_stalls_total", "Stalls of the event loop of 100 ms or more.", "api"
)
LOOP_BUSY = Metric.counter(
    "kompakt_loop_busy_seconds_total", "Processor time of the event loop's thread."
)
_IDLE = "Fraction of the last minute, from 0 to 1, in which the event loop's thread was idle."
IDLE_NAMES = (
    Metric.gauge("kafka_network_socketserver_networkprocessoravgidle_percent", _IDLE),
    Metric.gauge("kafka_network_socketserver_networkprocessoravgidlepercent", _IDLE),
    Metric.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", _IDLE),
    Metric.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", _IDLE),
)
"""As the JMX exporter's rules name them, with and without the underscore."""

BACKGROUND_FAILURES = Metric.counter(
    "kompakt_background_failures_total",
    "Unexpected failures of background work: bugs to report.",
    "work",
)

# Snapshots of topics, as counted at most a minute ago, or longer if there are many files.
SNAPSHOTS = Metric.gauge("kompakt_snapshots", "Snapshots of topics.")
SNAPSHOT_BYTES = Metric.gauge(
    "kompakt_snapshot_bytes",
    "Size of the segments in snapshots of topics. Most are shared with the logs, or with each other.",
)
SNAPSHOT_PINNED_BYTES = Metric.gauge(
    "kompakt_snapshot_pinned_bytes",
    "Bytes of files that only snapshots of topics still hold: free without them.",
)

# Logs of state machines, which snapshots bound: metadata.
REPLOG_DISK_BYTES = Metric.gauge(
    "kompakt_replog_disk_bytes", "Bytes of a state machine's log and snapshots.", "log"
)
REPLOG_BOUND_BYTES = Metric.gauge(
    "kompakt_replog_disk_bound_bytes", "The most bytes that these may take, by u.", "log"
)
REPLOG_LOG_BYTES = Metric.gauge(
    "kompakt_replog_log_bytes", "Bytes of the entries after the last snapshot.", "log"
)
REPLOG_SNAPSHOT_BYTES = Metric.gauge(
    "kompakt_replog_snapshot_bytes", "Bytes of the last snapshot.", "log"
)
REPLOG_REPLAY_SECONDS = Metric.gauge(
    "kompakt_replog_replay_seconds", "Estimated replay of the log at the next start.", "log"
)
REPLOG_SNAPSHOT_SECONDS = Metric.gauge(
    "kompakt_replog_snapshot_seconds", "How long the last snapshot took.", "log"
)
REPLOG_U = Metric.gauge(
    "kompakt_replog_u", "Snapshot bytes that may be written for a byte of log.", "log"
)

# Followers of the metadata's log, at most a hundred.
FOLLOWER_LAG = Metric.gauge(
    "kompakt_replog_follower_lag_entries", "Entries that a follower had not yet.", "follower"
)
FOLLOWER_COPY_LAG = Metric.gauge(
    "kompakt_replog_follower_copy_lag_offsets",
    "Offsets of a coordinator's topic that a follower had not yet.",
    "follower",
    "topic",
)
FOLLOWER_COPY_SEEN = Metric.gauge(
    "kompakt_replog_follower_copy_seen_seconds",
    "Time since a follower's last request about a coordinator's topic.",
    "follower",
    "topic",
)
FOLLOWER_COPY_CHECKPOINTS = Metric.counter(
    "kompakt_replog_follower_copy_checkpoints_total",
    "Checkpoints of a coordinator's topic that a follower downloaded, to install or to verify.",
    "follower",
    "topic",
)
FOLLOWER_SEEN = Metric.gauge(
    "kompakt_replog_follower_seen_seconds", "Time since a follower's last request.", "follower"
)
FOLLOWER_INSTALLS = Metric.counter(
    "kompakt_replog_follower_installs_total", "Snapshots that a follower downloaded.", "follower"
)

# Links to other clusters, and their mirrors.
LINK_UP = Metric.gauge(
    "kompakt_link_up", "Whether the source of a link has answered the last request.", "link"
)
MIRROR_PARTITIONS = Metric.gauge(
    "kompakt_mirror_partitions", "Mirrored partitions by state.", "link", "state"
)
MIRROR_LAG_OFFSETS = Metric.gauge(
    "kompakt_mirror_lag_offsets",
    "Offsets up to the source's end. A compacted source has fewer records than that.",
    "link",
    "topic",
)
MIRROR_LAG_SECONDS = Metric.gauge(
    "kompakt_mirror_lag_seconds",
    "Time since the slowest partition of a mirror had all that its source had.",
    "link",
    "topic",
)
MIRROR_COPIED = Metric.counter(
    "kompakt_mirror_copied_bytes_total", "Bytes of batches copied from a source.", "link"
)
MIRROR_FAILED_ATTEMPTS = Metric.counter(
    "kompakt_mirror_failed_attempts_total", "Attempts to copy a partition that failed.", "link"
)
MIRROR_CUT = Metric.counter(
    "kompakt_mirror_cut_offsets_total",
    "Offsets that were cut off because the source no longer has them.",
    "link",
)
MIRROR_SKIPPED = Metric.counter(
    "kompakt_mirror_skipped_offsets_total",
    "Offsets that the source deleted before they were copied.",
    "link",
)
MIRROR_RESYNCS_STARTED = Metric.counter(
    "kompakt_mirror_resyncs_started_total",
    "Partitions that began to be copied once more, beside their logs.",
    "link",
)
MIRROR_RESYNCS_COMPLETED = Metric.counter(
    "kompakt_mirror_resyncs_completed_total",
    "New copies of partitions that took the place of their logs.",
    "link",
)

# The disk.
DISK_READ = Metric.gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "Bytes that this process has read from disks (/proc/self/io).",
)
DISK_WRITTEN = Metric.gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "Bytes that this process has written to disks (/proc/self/io).",
)
SYNC_SECONDS = Metric.histogram("kompakt_sync_round_seconds", "Duration of a sync round.")
COLD_READS = Metric.counter(
    "kompakt_cold_reads_total",
    "Reads that the page cache could not serve, so that a thread read the disk.",
)
LOGS_SYNCED = Metric.counter("kompakt_logs_synced_total", "Logs that sync rounds made durable.")
FREE_BYTES = Metric.gauge(
    "kompakt_log_directory_free_bytes", "Free bytes of a log directory's disk.", "directory"
)
OFFLINE_DIRECTORIES = Metric.gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories out of service."
)

# Recovery after a crash.
LOGS_RECOVERED = Metric.counter("kompakt_recovery_logs_total", "Logs that the start recovered.")
RECOVERY_SCANNED = Metric.counter(
    "kompakt_recovery_scanned_bytes_total", "Sound bytes that the start found by scanning."
)
RECOVERY_CUT = Metric.counter(
    "kompakt_recovery_cut_bytes_total",
    "Unsound bytes, and the bytes after them, that the start cut off logs.",
)
RECOVERY_CUT_FILES = Metric.counter(
    "kompakt_recovery_cut_files_total", "Files that keep the bytes that the start cut off logs."
)

# Constants of a single broker, which leads all partitions and has their only replicas.
ONE_BROKER: tuple[tuple[Metric, float], ...] = (
    (
        Metric.gauge(
            "kafka_controller_kafkacontroller_activecontrollercount", "1: it controls itself."
        ),
        1,
    ),
    (Metric.gauge("kafka_controller_kafkacontroller_activebrokercount", "1: this broker."), 1),
    (
        Metric.gauge("kafka_controller_kafkacontroller_fencedbrokercount", "0: there is no other."),
        0,
    ),
    (
        Metric.gauge(
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "0: every leader is the preferred one.",
        ),
        0,
    ),
    (
        Metric.counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "0: no leader was ever elected.",
        ),
        0,
    ),
    (
        Metric.gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "0: every partition has the one replica that it should have.",
        ),
        0,
    ),
    (
        Metric.gauge(
            "kafka_server_replicamanager_underminisrpartitioncount",
            "0: with one replica, one in sync is enough, whatever min.insync.replicas says.",
        ),
        0,
    ),
    (
        Metric.counter(
            "kafka_server_replicamanager_isrshrinks_total", "0: sets of one never shrink."
        ),
        0,
    ),
    (
        Metric.counter(
            "kafka_server_replicamanager_isrexpands_total", "0: sets of one never expand."
        ),
        0,
    ),
)
ONE_REPLICA: tuple[tuple[Metric, float], ...] = tuple(
    (Metric.gauge(name, text, "topic", "partition"), value)
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
PARTITION_LEADER = Metric.gauge(
    "kafka_topic_partition_leader",
    "node.id of a partition's leader: this broker.",
    "topic",
    "partition",
)
GLOBAL_TOPICS = Metric.gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics.")
GLOBAL_PARTITIONS = Metric.gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions."
)
BROKER_INFO = Metric.gauge(
    "kafka_broker_info", "1; the labels say how clients know this broker.", "id", "address"
)
PARTITIONS_UNLISTED = Metric.gauge(
    "kompakt_partitions_unlisted",
    "Partitions in use beyond metrics.partitions.max, which Kafka's metrics by partition do not list.",
)

# The broker.
BUILD_INFO = Metric.gauge("kompakt_build_info", "1; the label is the version that runs.", "version")
IS_READY = Metric.gauge(
    "kompakt_ready", "Whether the broker serves: recovered, listening, not stopping."
)
IS_FENCED = Metric.gauge(
    "kompakt_broker_fenced", "Whether another broker has taken over (broker.fenced.by)."
)

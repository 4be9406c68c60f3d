"""Metrics of compaction: what waits in each partition, and what the cleaner does."""

from __future__ import annotations

from metrics.metric import Metric

# Compacted partitions, and their topics: a sum, or the value of the worst partition.
DIRTY_BYTES = Metric.gauge(
    "kompakt_log_dirty_bytes",
    "Bytes that no pass has cleaned, including the active segment's.",
    "topic",
    "partition",
)
TOPIC_DIRTY_BYTES = Metric.gauge("kompakt_topic_dirty_bytes", "Dirty bytes of a topic.", "topic")
CLEANABLE_BYTES = Metric.gauge(
    "kompakt_log_cleanable_bytes", "Dirty bytes that a pass could clean now.", "topic", "partition"
)
TOPIC_CLEANABLE_BYTES = Metric.gauge(
    "kompakt_topic_cleanable_bytes", "Cleanable bytes of a topic.", "topic"
)
DIRTY_RATIO = Metric.gauge(
    "kompakt_log_dirty_ratio",
    "Cleanable bytes over clean plus cleanable bytes; the cleaner compares it with"
    " min.cleanable.dirty.ratio.",
    "topic",
    "partition",
)
TOPIC_DIRTY_RATIO = Metric.gauge(
    "kompakt_topic_dirty_ratio_max", "Dirty ratio of a topic's dirtiest partition.", "topic"
)
RECLAIMABLE = Metric.gauge(
    "kompakt_log_reclaimable_bytes",
    "Bytes that a pass would free by dropping superseded records, measured by counting keys; absent"
    " until they were counted.",
    "topic",
    "partition",
)
TOPIC_RECLAIMABLE = Metric.gauge(
    "kompakt_topic_reclaimable_bytes",
    "Bytes that passes would free in the counted partitions of a topic.",
    "topic",
)
RECLAIMABLE_ERROR = Metric.gauge(
    "kompakt_log_reclaimable_error_bytes",
    "Standard error of kompakt_log_reclaimable_bytes.",
    "topic",
    "partition",
)
TOPIC_RECLAIMABLE_ERROR = Metric.gauge(
    "kompakt_topic_reclaimable_error_bytes",
    "Standard error of kompakt_topic_reclaimable_bytes.",
    "topic",
)
OFFSET_LAG = Metric.gauge(
    "kompakt_log_clean_offset_lag",
    "Offsets between the clean offset and the log's end.",
    "topic",
    "partition",
)
TOPIC_OFFSET_LAG = Metric.gauge(
    "kompakt_topic_clean_offset_lag", "Clean offset lag, summed over a topic's partitions.", "topic"
)
RECORDS = Metric.gauge(
    "kompakt_log_records",
    "Records of a compacted partition, without markers of transactions; estimated if the log starts"
    " within a segment that a pass has rewritten.",
    "topic",
    "partition",
)
TOPIC_RECORDS = Metric.gauge(
    "kompakt_topic_records", "Records of a compacted topic, summed over its partitions.", "topic"
)
OVERDUE = Metric.gauge(
    "kompakt_log_overdue_seconds",
    "Time by which the oldest dirty record has outlived max.compaction.lag.ms.",
    "topic",
    "partition",
)
TOPIC_OVERDUE = Metric.gauge(
    "kompakt_topic_overdue_seconds_max",
    "Overdue seconds of a topic's most overdue partition.",
    "topic",
)
SINCE_PASS = Metric.gauge(
    "kompakt_log_seconds_since_pass",
    "Time since the last completed pass; absent until the first pass after a start.",
    "topic",
    "partition",
)
TOPIC_SINCE_PASS = Metric.gauge(
    "kompakt_topic_seconds_since_pass_max",
    "Time since the last completed pass over the topic's partition that has waited longest.",
    "topic",
)
TOMBSTONES = Metric.gauge(
    "kompakt_log_tombstones",
    "Tombstones in segments that a pass has counted.",
    "topic",
    "partition",
)
TOPIC_TOMBSTONES = Metric.gauge("kompakt_topic_tombstones", "Tombstones of a topic.", "topic")
TOMBSTONE_BYTES = Metric.gauge(
    "kompakt_log_tombstone_bytes",
    "Uncompressed bytes of these tombstones; absent while an earlier release has counted some of them.",
    "topic",
    "partition",
)
TOPIC_TOMBSTONE_BYTES = Metric.gauge(
    "kompakt_topic_tombstone_bytes", "Uncompressed bytes of a topic's tombstones.", "topic"
)
TOMBSTONES_DUE = Metric.gauge(
    "kompakt_log_tombstones_due_timestamp_seconds",
    "Unix time at which the last of these tombstones may go; absent if one has no date yet.",
    "topic",
    "partition",
)
TOPIC_TOMBSTONES_DUE = Metric.gauge(
    "kompakt_topic_tombstones_due_timestamp_seconds_max",
    "Unix time at which the last of a topic's tombstones that have a date may go.",
    "topic",
)
SIDECAR_BYTES = Metric.gauge(
    "kompakt_log_key_sidecar_bytes",
    "Bytes of the key sidecars beside a log's segments, which kafka_log_log_size does not include.",
    "topic",
    "partition",
)
TOPIC_SIDECAR_BYTES = Metric.gauge(
    "kompakt_topic_key_sidecar_bytes", "Bytes of a topic's key sidecars.", "topic"
)
KEPT_BYTES = Metric.gauge(
    "kompakt_log_undo_kept_bytes",
    "Bytes of replaced segments that are kept so that passes can be undone (compaction.undo.ms), which"
    " kafka_log_log_size does not include.",
    "topic",
    "partition",
)
TOPIC_KEPT_BYTES = Metric.gauge(
    "kompakt_topic_undo_kept_bytes",
    "Bytes that a topic keeps so that passes can be undone.",
    "topic",
)
DELETE_HORIZON = Metric.gauge(
    "kompakt_log_delete_horizon_timestamp_seconds",
    "Unix time at which the log's earliest tombstone or marker may go.",
    "topic",
    "partition",
)
TOPIC_HORIZON = Metric.gauge(
    "kompakt_topic_delete_horizon_timestamp_seconds_min",
    "Earliest delete horizon of a topic.",
    "topic",
)
RECLAIMED = Metric.counter(
    "kompakt_log_reclaimed_bytes_total",
    "Bytes that completed passes freed.",
    "topic",
    "partition",
)
TOPIC_RECLAIMED = Metric.counter(
    "kompakt_topic_reclaimed_bytes_total", "Reclaimed bytes of a topic.", "topic"
)
PARTITION_PASSES = Metric.counter(
    "kompakt_log_passes_total",
    "Passes over a log, by result.",
    "topic",
    "partition",
    "result",
)
TOPIC_PASSES = Metric.counter(
    "kompakt_topic_passes_total",
    "Passes over a topic's logs, by result.",
    "topic",
    "result",
)
QUARANTINE_FAILURES = Metric.gauge(
    "kompakt_log_quarantine_failures",
    "Passes over a log in quarantine that failed in a row; the reason is the kind of error.",
    "topic",
    "partition",
    "reason",
)
TOPIC_QUARANTINED = Metric.gauge(
    "kompakt_topic_quarantined_partitions", "Partitions of a topic in quarantine.", "topic"
)
FENCED_BYTES = Metric.gauge(
    "kompakt_log_fenced_bytes",
    "Bytes of the damaged segments that the last pass over a log has cleaned around.",
    "topic",
    "partition",
)
TOPIC_FENCED = Metric.gauge(
    "kompakt_topic_fenced_partitions", "Partitions of a topic with a damaged segment.", "topic"
)

# The cleaner.
PASSES = Metric.counter(
    "kompakt_cleaner_passes_total", "Cleaning passes: completed, aborted, failed.", "result"
)
PASS_SECONDS = Metric.histogram("kompakt_cleaner_pass_seconds", "Duration of a completed pass.")
PASSES_RUNNING = Metric.gauge("kompakt_cleaner_passes_running", "Cleaning passes that are running.")
CLEANER_LEASES = Metric.gauge(
    "kompakt_cleaner_leases", "Logs that other processes have leased for cleaning."
)
OLDEST_PASS = Metric.gauge(
    "kompakt_cleaner_oldest_pass_seconds",
    "Age of the oldest running pass; a pass that runs for hours is stuck or starved.",
)
CLEANER_BUSY = Metric.counter(
    "kompakt_cleaner_busy_seconds_total",
    "Time that cleaner threads have spent in passes, including running ones and throttled time.",
)
CLEANER_THREADS = Metric.gauge("kompakt_cleaner_threads", "Passes that may run at the same time.")
CLEANER_READ = Metric.counter(
    "kompakt_cleaner_read_bytes_total",
    "Bytes that passes read: segments, key sidecars, and the outputs that they verify.",
)
CLEANER_WRITTEN = Metric.counter(
    "kompakt_cleaner_written_bytes_total", "Bytes of segments and key sidecars that passes wrote."
)
CLEANER_RECORDS = Metric.counter(
    "kompakt_cleaner_records_total", "Records that passes kept or dropped, by reason.", "verdict"
)
CLEANER_OUTRANKED = Metric.counter(
    "kompakt_cleaner_outranked_records_total",
    "Superseded records after the one that outranks them (compaction.strategy): writers race.",
)
EXPIRY_SWEEPS = Metric.counter(
    "kompakt_expiry_sweeps_total", "Completed sweeps for expired values (compaction.ttl.ms)."
)
EXPIRY_FOUND = Metric.counter(
    "kompakt_expiry_expired_values_total",
    "Expired values that sweeps have read, also those that have a later one; again until a pass drops"
    " them.",
)
EXPIRY_TOMBSTONES = Metric.counter(
    "kompakt_expiry_tombstones_total", "Tombstones that sweeps have appended for expired values."
)
EXPIRY_UNREADABLE = Metric.counter(
    "kompakt_expiry_unreadable_values_total",
    "Values that sweeps have read whose compaction.ttl.header is no number of milliseconds; the topic's"
    " own time holds for them.",
)
CLEANER_MOVED = Metric.counter(
    "kompakt_cleaner_moved_records_total",
    "Records without a key that passes moved to another topic (compaction.unkeyed.topic).",
)
CLEANER_RECLAIMED = Metric.counter(
    "kompakt_cleaner_reclaimed_bytes_total", "Bytes that completed passes freed."
)
CLEANER_UNTOUCHED_BYTES = Metric.counter(
    "kompakt_cleaner_untouched_bytes_total",
    "Bytes of segments that passes left untouched, because nothing in them changes.",
)
CLEANER_UNTOUCHED_SEGMENTS = Metric.counter(
    "kompakt_cleaner_untouched_segments_total", "Segments that passes left untouched."
)
CLEANER_SIDECARS = Metric.counter(
    "kompakt_cleaner_key_sidecars_made_total",
    "Key sidecars that passes made by reading a segment that had none or an unusable one.",
)
CLEANER_MAP_PARTS = Metric.gauge(
    "kompakt_cleaner_map_parts_max",
    "Largest number of parts in which a thread's last pass mapped its keys; 1: they fit at once.",
)
CLEANER_VERIFIED = Metric.counter(
    "kompakt_cleaner_verify_seconds_total", "Time that passes spent verifying their output."
)
CLEANER_THROTTLED = Metric.counter(
    "kompakt_cleaner_throttled_seconds_total", "Time that workers slept because of the I/O budget."
)
CLEANER_GUARD_RATE = Metric.gauge(
    "kompakt_cleaner_guard_bytes_per_second",
    "Rate at which the latency guard lets passes read and write; +Inf while it does not limit them.",
)
CLEANER_GUARD_QUIET = Metric.gauge(
    "kompakt_cleaner_guard_quiet_p99_seconds",
    "99th percentile of produce times in quiet time, with which the latency guard compares.",
)
CLEANER_WORKER_FAILURES = Metric.counter(
    "kompakt_cleaner_worker_failures_total",
    "Exceptions in cleaner workers outside of any pass.",
)
CLEANER_EVENTS = Metric.counter(
    "kompakt_cleaner_events_total",
    "Events for __compaction_events: written, or lost because too many waited.",
    "result",
)
# Erasures of keys (docs/design/erasure.md).
ERASURES = Metric.gauge(
    "kompakt_erasures",
    "Erasures of keys by state: cleaning, held, erased (certified; tombstones wait), complete, ended.",
    "state",
)
ERASURES_AT_RISK = Metric.gauge(
    "kompakt_erasures_at_risk", "Erasures that may not be complete at their deadline."
)
ERASURES_OVERDUE = Metric.gauge(
    "kompakt_erasures_overdue", "Erasures whose deadline has passed before they were complete."
)
ERASURES_NEXT_DEADLINE = Metric.gauge(
    "kompakt_erasures_next_deadline_seconds",
    "Time to the first deadline of the erasures that are not complete; negative once it has passed.",
)
# Kafka's names for the cleaner, with Kafka's meanings.
MAX_BUFFER_UTILIZATION = Metric.gauge(
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "Fill level of the fullest offset map of the threads' last passes, in percent of its memory.",
)
RECOPY_PERCENT = Metric.gauge(
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "Percentage of the bytes recopied by the threads' last passes that were written again.",
)
MAX_CLEAN_TIME = Metric.gauge(
    "kafka_log_logcleaner_max_clean_time_secs",
    "Duration of the longest of the threads' last passes.",
)
DEAD_THREADS = Metric.gauge(
    "kafka_log_logcleaner_deadthreadcount", "Cleaner workers that have ended."
)
STALLED_TASKS = Metric.gauge(
    "kompakt_cleaner_stalled_tasks",
    "Cleaning passes and other tasks of the cleaner without progress for log.cleaner.stalled.ms.",
)
LEDGER_BREAKS = Metric.gauge(
    "kompakt_cleaner_ledger_breaks",
    "Broken chains of certificates that this run has found when it opened the ledgers of passes.",
)
UNCLEANABLE_PARTITIONS = Metric.gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions in quarantine, by log directory.",
    "logDirectory",
)
UNCLEANABLE_BYTES = Metric.gauge(
    "kafka_log_logcleanermanager_uncleanable_bytes",
    "Cleanable bytes of the partitions in quarantine, by log directory.",
    "logDirectory",
)
MAX_DIRTY_PERCENT = Metric.gauge(
    "kafka_log_logcleanermanager_max_dirty_percent", "Dirty ratio of the dirtiest log, in percent."
)
MAX_COMPACTION_DELAY = Metric.gauge(
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "Time by which the oldest dirty record of all logs has outlived max.compaction.lag.ms.",
)
DISK_PRESSURE = Metric.gauge(
    "kompakt_cleaner_directories_short_of_space",
    "Log directories with less free space than log.cleaner.disk.pressure.free.bytes, for which the"
    " cleaner hurries.",
)
OVERDUE_PARTITIONS = Metric.gauge(
    "kompakt_cleaner_overdue_partitions",
    "Partitions with a dirty record that has outlived max.compaction.lag.ms.",
)
TIME_SINCE_LAST_RUN = Metric.gauge(
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "Time since the cleaner last looked for work, in ms.",
)

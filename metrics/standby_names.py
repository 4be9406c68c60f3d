"""The metrics of `kompakt standby`, a process of its own."""

from __future__ import annotations

from metrics.metric import Metric

STATE = Metric.gauge(
    "kompakt_standby_state", "1 for what the standby is doing, 0 for the other states.", "state"
)
END = Metric.gauge("kompakt_standby_end", "The index after the last entry that is applied.")
LAG = Metric.gauge(
    "kompakt_standby_lag_entries", "Entries that the leader had and the standby lacks."
)
DISK_BYTES = Metric.gauge("kompakt_standby_disk_bytes", "Bytes of the copy.")
INSTALLS = Metric.counter(
    "kompakt_standby_installs_total", "Snapshots that the standby took from its leader."
)
COPY_LAG = Metric.gauge(
    "kompakt_standby_copy_lag_offsets",
    "Offsets of a coordinators' topic that the leader had and the standby lacks, over its partitions.",
    "topic",
)
COPY_WAITING = Metric.gauge(
    "kompakt_standby_copy_waiting_partitions",
    "Partitions of a coordinators' topic that need the leader's checkpoint, or that it refuses.",
    "topic",
)
COPY_DISK_BYTES = Metric.gauge(
    "kompakt_standby_copy_disk_bytes", "Bytes of the copy of a coordinators' topic.", "topic"
)
COPY_INSTALLS = Metric.counter(
    "kompakt_standby_copy_installs_total",
    "Checkpoints of a coordinators' topic that the standby took from its leader.",
    "topic",
)

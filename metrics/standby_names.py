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

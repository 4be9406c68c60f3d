"""The properties of logs that are compacted by snapshots (`replog/`): the metadata store's.

Source: Apache Kafka, MetadataLogConfig.java, for `metadata.log.max.snapshot.interval.ms`.
"""

from __future__ import annotations

from dataclasses import dataclass

from replog.trigger import CompactionSettings, SnapshotterName
from storage.formats.config_property import DOUBLE, INT, LONG, STRING, prop


@dataclass(frozen=True, kw_only=True)
class ReplogConfig:
    """When a state machine's log is replaced by a snapshot, and what is kept of it."""

    __slots__ = ()

    replog_snapshot_u: float = prop(
        "replog.snapshot.u",
        DOUBLE,
        default=0.1,
        at_least=0.001,
        at_most=1000,
        dynamic=False,
        doc="A snapshot is taken when the log's bytes times this exceed the last snapshot's: the bytes"
        " of snapshots that may be written for a byte of log. Smaller values write less and take more"
        " disk, at most (1 + 1/u) times the snapshot, and the next one. Specific to Kompakt.",
    )
    replog_replay_ms: int = prop(
        "replog.replay.ms",
        LONG,
        default=200,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="A snapshot is also taken when replaying the log at the next start would take longer than"
        " this, by the rate of the last replay. Specific to Kompakt.",
    )
    replog_snapshots_keep: int = prop(
        "replog.snapshots.keep",
        INT,
        default=1,
        at_least=1,
        at_most=10,
        dynamic=False,
        doc="The snapshots to keep. With 2, a damaged one does no harm: the log is kept back to the"
        " older one, which takes twice the disk. Specific to Kompakt.",
    )
    replog_catchup_entries: int = prop(
        "replog.catchup.entries",
        INT,
        default=5_000,
        at_least=0,
        dynamic=False,
        doc="The entries to keep below the last snapshot, so that a follower that was away for a short"
        " time does not need the snapshot. Specific to Kompakt.",
    )
    replog_snapshotter: str = prop(
        "replog.snapshotter",
        STRING,
        default=SnapshotterName.OFFLINE_MERGE.value,
        choices=tuple(each.value for each in SnapshotterName),
        dynamic=False,
        doc="How a snapshot is written while requests continue: in-process, by a thread of the broker"
        " from a copy of references, or offline-merge, by a child process from the last snapshot and the"
        " log after it, if the state takes 16 MiB or more. If the child fails, the broker writes the"
        " snapshot itself. Specific to Kompakt.",
    )
    replog_follower_snapshots_max: int = prop(
        "replog.follower.snapshots.max",
        INT,
        default=2,
        at_least=1,
        at_most=100,
        dynamic=False,
        doc="The followers that may download a snapshot of the metadata at the same time; others"
        " must ask again later. Specific to Kompakt.",
    )
    replog_follower_bytes_per_second: int = prop(
        "replog.follower.bytes.per.second",
        LONG,
        default=64 << 20,
        at_least=64 << 10,
        unit="bytes",
        dynamic=False,
        doc="The bytes of entries and snapshots of the metadata that all followers together may fetch in"
        " a second. Specific to Kompakt.",
    )
    metadata_log_max_snapshot_interval_ms: int = prop(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        default=3_600_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="A snapshot is also taken with the first change of the metadata after this time since the"
        " last snapshot; 0: never because of time.",
    )

    def compaction_settings(self) -> CompactionSettings:
        """Returns the settings of the metadata store's log."""
        return CompactionSettings(
            u=self.replog_snapshot_u,
            replay_ms=self.replog_replay_ms,
            age_ms=self.metadata_log_max_snapshot_interval_ms or float("inf"),
            snapshots_keep=self.replog_snapshots_keep,
            catchup_entries=self.replog_catchup_entries,
            snapshotter=SnapshotterName(self.replog_snapshotter),
        )

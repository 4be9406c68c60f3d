"""The part of the broker's configuration that is about what it stores, where, and how durably.

Source: Apache Kafka, KRaftConfigs.java, ServerLogConfigs.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.formats.config_property import BOOLEAN, INT, LIST, LONG, STRING, prop


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """The broker's ids and directories, how topics are created, and the upkeep of their logs."""

    __slots__ = ()

    node_id: int = prop(
        "node.id",
        INT,
        default=1,
        at_least=0,
        dynamic=False,
        doc="This broker's number, by which clients identify it.",
    )
    cluster_id: str = prop(
        "cluster.id",
        STRING,
        default="",
        dynamic=False,
        doc="The cluster's id; if empty, the first start generates one and stores it with the data.",
    )
    log_dir: str = prop(
        "log.dir",
        STRING,
        default="data",
        dynamic=False,
        doc="The data directory, if log.dirs is empty.",
    )
    log_dirs: tuple[str, ...] = prop(
        "log.dirs",
        LIST,
        default=(),
        dynamic=False,
        doc="The data directories, separated by commas; partitions are spread over them.",
    )
    metadata_log_dir: str = prop(
        "metadata.log.dir",
        STRING,
        default="",
        dynamic=False,
        doc="The log directory that holds the metadata; the first one by default.",
    )
    num_partitions: int = prop(
        "num.partitions",
        INT,
        default=1,
        at_least=1,
        dynamic=False,
        doc="Partitions of a topic whose creation does not specify a number.",
    )
    partitions_max: int = prop(
        "max.topic.partitions",
        INT,
        default=100_000,
        at_least=1,
        dynamic=False,
        doc="The most partitions of one topic, so that one request cannot exhaust the machine."
        " Specific to Kompakt.",
    )
    default_replication_factor: int = prop(
        "default.replication.factor",
        INT,
        default=1,
        at_least=1,
        at_most=1,
        dynamic=False,
        doc="Replicas of a topic whose creation does not specify a number; there is one broker.",
    )
    auto_create_topics_enable: bool = prop(
        "auto.create.topics.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether a topic is created when a client first asks for its metadata.",
    )
    delete_topic_enable: bool = prop(
        "delete.topic.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether clients may delete topics.",
    )
    flush_on_acks_all: bool = prop(
        "flush.on.acks.all",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether a record must be on disk before acks=all is answered and consumers can read it."
        " False gives Kafka's guarantee: a crash of the machine may lose acknowledged records, except"
        " in topics whose flush.messages is 1. Specific to Kompakt.",
    )
    log_flush_scheduler_interval_ms: int = prop(
        "log.flush.scheduler.interval.ms",
        LONG,
        default=1_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often logs are checked for records that are unflushed for longer than flush.ms; only if"
        " flush.on.acks.all is false. Kafka's default is never.",
    )
    log_roll_check_interval_ms: int = prop(
        "log.roll.check.interval.ms",
        LONG,
        default=1_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often logs are checked for active segments that are older than segment.ms. Specific to"
        " Kompakt.",
    )
    log_retention_check_interval_ms: int = prop(
        "log.retention.check.interval.ms",
        LONG,
        default=300_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often logs are checked for segments to delete because of retention.ms, retention.bytes"
        " or DeleteRecords.",
    )
    num_recovery_threads_per_data_dir: int = prop(
        "num.recovery.threads.per.data.dir",
        INT,
        default=2,
        at_least=1,
        doc="The number of logs of one directory that are recovered in parallel after a crash. A change"
        " while the broker runs takes effect at the next start.",
    )
    log_flush_offset_checkpoint_interval_ms: int = prop(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        default=60_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often the recovery points of logs that have grown by 8 MiB or more are moved to"
        " their ends; after a crash, recovery scans the records from there on.",
    )

    key_lookup_bytes_max: int = prop(
        "key.lookup.bytes.max",
        LONG,
        default=256 << 20,
        at_least=1 << 20,
        unit="bytes",
        doc="The memory of the tables by which last values are found (kompakt get), of all partitions"
        " together: 27 bytes a key, 36 with compaction.strategy=timestamp or header. Tables that were"
        " not used for the longest time make room for others; a partition whose table alone is larger"
        " keeps most of it on the disk. Specific to Kompakt.",
    )

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The log directories; at least one."""
        return tuple(path for path in self.log_dirs if path) or (self.log_dir,)

    @property
    def metadata_directory(self) -> str:
        """The log directory that holds the metadata store."""
        return self.metadata_log_dir or self.data_directories[0]

"""The settings of a topic, with Kafka's names, defaults and bounds.

A topic stores the settings that it overrides; all other settings come from the broker's
defaults, which in turn come from broker-wide synonyms such as `log.segment.bytes`. Settings of features
that are not built (replication throttles, tiered storage) are accepted if Kafka's own tools send them,
and described; a setting that would promise something untrue is refused. `server/topics/topics.py`
changes the settings of a topic while the broker runs.

Source: Apache Kafka, TopicConfig.java, LogConfig.java, ServerTopicConfigSynonyms.java.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from protocol.records.compression import Codec
from storage.formats.config_property import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    ConfigError,
    ConfigProperty,
    Synonym,
    Value,
    fields_by_property,
    parse_fields,
    prop,
    properties_of,
)
from storage.formats.stored_codec import StoredCodec

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000
MINUTE_MS = 60 * 1000
THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic's logs. Immutable: a change makes a new object."""

    cleanup_policy: tuple[str, ...] = prop(
        "cleanup.policy",
        LIST,
        default=("delete",),
        choices=("compact", "delete", "dedupe"),
        synonyms=(Synonym(name="log.cleanup.policy"),),
        doc="What happens to old records: delete removes old segments, compact keeps the last"
        " record of each key; both together do both, neither keeps everything. dedupe is the old name"
        " of compact and means the same.",
    )
    segment_bytes: int = prop(
        "segment.bytes",
        INT,
        default=1 << 30,
        at_least=1 << 20,
        unit="bytes",
        synonyms=(Synonym(name="log.segment.bytes"),),
        doc="A segment rolls when the next batch would exceed this. Smaller segments are cleaned"
        " sooner, at the price of more files.",
    )
    internal_segment_bytes: int | None = prop(
        "internal.segment.bytes",
        INT,
        default=None,
        at_least=1,
        unit="bytes",
        internal=True,
        doc="Overrides segment.bytes with values below its minimum, for tests.",
    )
    segment_ms: int = prop(
        "segment.ms",
        LONG,
        default=7 * DAY_MS,
        at_least=1,
        unit="ms",
        synonyms=(Synonym(name="log.roll.ms"), Synonym(name="log.roll.hours", scale=HOUR_MS)),
        doc="A segment with records rolls this long after its first append, full or not;"
        " the cleaner never touches the active segment.",
    )
    segment_jitter_ms: int = prop(
        "segment.jitter.ms",
        LONG,
        default=0,
        at_least=0,
        unit="ms",
        synonyms=(
            Synonym(name="log.roll.jitter.ms"),
            Synonym(name="log.roll.jitter.hours", scale=HOUR_MS),
        ),
        doc="Up to this much is taken off segment.ms at random, so that not all logs roll at once.",
    )
    segment_index_bytes: int = prop(
        "segment.index.bytes",
        INT,
        default=10 << 20,
        at_least=4,
        unit="bytes",
        synonyms=(Synonym(name="log.index.size.max.bytes"),),
        doc="A segment rolls when its offset index or its time index has reached this size.",
    )
    index_interval_bytes: int = prop(
        "index.interval.bytes",
        INT,
        default=4096,
        at_least=0,
        unit="bytes",
        synonyms=(Synonym(name="log.index.interval.bytes"),),
        doc="The offset index gets an entry after about this many bytes of batches.",
    )
    max_message_bytes: int = prop(
        "max.message.bytes",
        INT,
        default=1024 * 1024 + 12,
        at_least=0,
        unit="bytes",
        synonyms=(Synonym(name="message.max.bytes"),),
        doc="The largest record batch that is accepted, as it is sent (after compression).",
    )
    min_cleanable_dirty_ratio: float = prop(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        default=0.5,
        at_least=0,
        at_most=1,
        synonyms=(Synonym(name="log.cleaner.min.cleanable.ratio"),),
        doc="A compacted log is cleaned when more than this fraction of it was never cleaned. A lower"
        " value wastes less space on duplicates, but gives the cleaner more work.",
    )
    min_compaction_lag_ms: int = prop(
        "min.compaction.lag.ms",
        LONG,
        default=0,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.cleaner.min.compaction.lag.ms"),),
        doc="A record is not compacted away until this long after its append.",
    )
    min_compaction_lag_bytes: int = prop(
        "min.compaction.lag.bytes",
        LONG,
        default=0,
        at_least=0,
        unit="bytes",
        synonyms=(Synonym(name="log.cleaner.min.compaction.lag.bytes"),),
        doc="This many bytes at the log's end are not compacted, in whole segments, for at most"
        " max.compaction.lag.ms. Together with min.compaction.lag.ms the larger part stays. A"
        " property of Kompakt's own.",
    )
    max_compaction_lag_ms: int = prop(
        "max.compaction.lag.ms",
        LONG,
        default=LONG_MAX,
        at_least=1,
        unit="ms",
        synonyms=(Synonym(name="log.cleaner.max.compaction.lag.ms"),),
        doc="A log is cleaned, at any dirty ratio, once a record has waited this long; an active"
        " segment rolls in time for that, with or without appends.",
    )
    compaction_idle_roll_ms: int = prop(
        "compaction.idle.roll.ms",
        LONG,
        default=10 * MINUTE_MS,
        at_least=-1,
        unit="ms",
        synonyms=(Synonym(name="log.cleaner.idle.roll.ms"),),
        doc="The active segment of a compacted log without appends for this long rolls, so that it is"
        " cleaned, if with it the dirty ratio is above min.cleanable.dirty.ratio; -1: only"
        " segment.bytes, segment.ms and max.compaction.lag.ms roll it. Specific to Kompakt.",
    )
    delete_retention_ms: int = prop(
        "delete.retention.ms",
        LONG,
        default=DAY_MS,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.cleaner.delete.retention.ms"),),
        doc="How long a tombstone stays after it was first cleaned. A consumer that reads from the start"
        " must reach the end within this time to be sure to see every deletion.",
    )
    compaction_hold_groups: tuple[str, ...] = prop(
        "compaction.hold.groups",
        LIST,
        default=("__mirror.*",),
        synonyms=(Synonym(name="log.cleaner.hold.groups"),),
        doc="Groups, by name or by prefix with a *, that never miss a deletion, however far they lag:"
        " tombstones and transaction markers at and above the least offset that such a group has"
        " committed stay beyond delete.retention.ms. Their committed offsets do not expire. By default"
        " the links of mirrors. Specific to Kompakt.",
    )
    compaction_hold_max_ms: int = prop(
        "compaction.hold.max.ms",
        LONG,
        default=7 * DAY_MS,
        at_least=1,
        unit="ms",
        synonyms=(Synonym(name="log.cleaner.hold.max.ms"),),
        doc="A group of compaction.hold.groups whose committed offset has not moved for this long,"
        " though there is more to read, no longer holds tombstones. A mirror then has to be copied once"
        " more from the start. Specific to Kompakt.",
    )
    compaction_unkeyed_records: str = prop(
        "compaction.unkeyed.records",
        STRING,
        default="drop",
        choices=("drop", "keep"),
        doc="What cleaning does with records without a key, which a topic can hold from before it was"
        " compacted: drop, as Kafka does, counted in the cleaner's metrics, or keep. A property of"
        " Kompakt's own.",
    )
    retention_ms: int = prop(
        "retention.ms",
        LONG,
        default=7 * DAY_MS,
        at_least=-1,
        unit="ms",
        synonyms=(
            Synonym(name="log.retention.ms"),
            Synonym(name="log.retention.minutes", scale=MINUTE_MS),
            Synonym(name="log.retention.hours", scale=HOUR_MS),
        ),
        doc="With cleanup.policy delete: segments older than this are deleted; -1: never.",
    )
    retention_bytes: int = prop(
        "retention.bytes",
        LONG,
        default=-1,
        at_least=-1,
        unit="bytes",
        synonyms=(Synonym(name="log.retention.bytes"),),
        doc="With cleanup.policy delete: the oldest segments are deleted while a partition is"
        " larger than this; -1: no bound.",
    )
    message_timestamp_type: str = prop(
        "message.timestamp.type",
        STRING,
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=(Synonym(name="log.message.timestamp.type"),),
        doc="Whether a record's timestamp is the one its producer set or the time of its append.",
    )
    message_timestamp_before_max_ms: int = prop(
        "message.timestamp.before.max.ms",
        LONG,
        default=LONG_MAX,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.message.timestamp.before.max.ms"),),
        doc="With CreateTime: a record whose timestamp lies further in the past is refused. A bound"
        " narrower than the default makes the broker check every record, even compressed ones.",
    )
    message_timestamp_after_max_ms: int = prop(
        "message.timestamp.after.max.ms",
        LONG,
        default=HOUR_MS,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.message.timestamp.after.max.ms"),),
        doc="With CreateTime: a record whose timestamp lies further in the future is refused. Below"
        " the default, and on compacted topics, every record is checked; otherwise only the largest"
        " timestamp in the batch's header.",
    )
    compression_type: str = prop(
        "compression.type",
        STRING,
        default="producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(Synonym(name="compression.type"),),
        doc="The codec with which batches are stored; producer keeps what each producer chose. With any"
        " other value the broker recompresses batches of another codec.",
    )
    compression_gzip_level: int = prop(
        "compression.gzip.level",
        INT,
        default=-1,
        choices=("-1", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
        synonyms=(Synonym(name="compression.gzip.level"),),
        doc="The level if compression.type is gzip; -1 is the codec's own default.",
    )
    compression_lz4_level: int = prop(
        "compression.lz4.level",
        INT,
        default=9,
        at_least=1,
        at_most=17,
        synonyms=(Synonym(name="compression.lz4.level"),),
        doc="The level if compression.type is lz4; 9 is the fast compressor, as in Kafka.",
    )
    compression_zstd_level: int = prop(
        "compression.zstd.level",
        INT,
        default=3,
        at_least=-131072,
        at_most=22,
        synonyms=(Synonym(name="compression.zstd.level"),),
        doc="The level if compression.type is zstd.",
    )
    flush_messages: int = prop(
        "flush.messages",
        LONG,
        default=LONG_MAX,
        at_least=1,
        unit="records",
        synonyms=(Synonym(name="log.flush.interval.messages"),),
        doc="A log is synced after this many records; with 1, before acks=all is answered and a record"
        " can be read. Only used if flush.on.acks.all is false: otherwise that is so everywhere.",
    )
    flush_ms: int = prop(
        "flush.ms",
        LONG,
        default=LONG_MAX,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.flush.interval.ms"),),
        doc="A log is synced once a record has waited this long for it. Only used if flush.on.acks.all"
        " is false.",
    )
    file_delete_delay_ms: int = prop(
        "file.delete.delay.ms",
        LONG,
        default=60_000,
        at_least=0,
        unit="ms",
        synonyms=(Synonym(name="log.segment.delete.delay.ms"),),
        doc="Has no effect: a deleted segment's file is removed when its last reader is done.",
    )
    preallocate: bool = prop(
        "preallocate",
        BOOLEAN,
        default=False,
        synonyms=(Synonym(name="log.preallocate"),),
        doc="Whether disk space of segment.bytes is allocated when a segment is created, by a new topic"
        " or a roll, which fails if there is not enough; appends to the segment then never find the disk"
        " full. Sealing the segment frees the unused rest.",
    )
    min_insync_replicas: int = prop(
        "min.insync.replicas",
        INT,
        default=1,
        at_least=1,
        synonyms=(Synonym(name="min.insync.replicas"),),
        doc="How many replicas must hold a record before acks=all is answered. A partition has"
        " one replica here, so acks=all is refused above 1.",
    )
    unclean_leader_election_enable: bool = prop(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        synonyms=(Synonym(name="unclean.leader.election.enable"),),
        doc="Whether a replica that is not in sync may lead. Has no effect with one replica.",
    )
    message_downconversion_enable: bool = prop(
        "message.downconversion.enable",
        BOOLEAN,
        default=True,
        synonyms=(Synonym(name="log.message.downconversion.enable"),),
        doc="Has no effect, as in Kafka since 4.0: records are always sent as they are stored.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = prop(
        "leader.replication.throttled.replicas",
        LIST,
        default=(),
        doc="Replicas whose replication is throttled at the leader. Has no effect with one replica.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = prop(
        "follower.replication.throttled.replicas",
        LIST,
        default=(),
        doc="Replicas whose replication is throttled at the follower. Has no effect with one replica.",
    )
    remote_storage_enable: bool = prop(
        "remote.storage.enable",
        BOOLEAN,
        default=False,
        choices=("false",),
        doc="Tiered storage, which is not offered.",
    )
    remote_log_copy_disable: bool = prop(
        "remote.log.copy.disable",
        BOOLEAN,
        default=False,
        doc="Has no effect without tiered storage: whether new data of a tiered topic stays local.",
    )
    remote_log_delete_on_disable: bool = prop(
        "remote.log.delete.on.disable",
        BOOLEAN,
        default=False,
        doc="Has no effect without tiered storage: whether disabling it deletes the tiered data.",
    )
    local_retention_ms: int = prop(
        "local.retention.ms",
        LONG,
        default=-2,
        at_least=-2,
        unit="ms",
        synonyms=(Synonym(name="log.local.retention.ms"),),
        doc="Has no effect without tiered storage; -2 means the same as retention.ms.",
    )
    local_retention_bytes: int = prop(
        "local.retention.bytes",
        LONG,
        default=-2,
        at_least=-2,
        unit="bytes",
        synonyms=(Synonym(name="log.local.retention.bytes"),),
        doc="Has no effect without tiered storage; -2 means the same as retention.bytes.",
    )

    mirror_link: str = prop(
        "mirror.link",
        STRING,
        default="",
        doc="The link that fills this topic from another cluster; empty for an ordinary topic. Only"
        " kompakt replica changes it. Specific to Kompakt.",
    )
    mirror_source_topic_id: str = prop(
        "mirror.source.topic.id",
        STRING,
        default="",
        doc="The id of the topic that a mirror is a copy of. Only kompakt replica changes it. Specific"
        " to Kompakt.",
    )
    mirror_compaction: str = prop(
        "mirror.compaction",
        STRING,
        default="off",
        choices=("off", "on"),
        doc="Whether a mirror is compacted as its cleanup.policy says, by this broker and at its own"
        " times. Off, it keeps the full history while the source forgets. Specific to Kompakt.",
    )

    mirror_local_properties: tuple[str, ...] = prop(
        "mirror.local.properties",
        LIST,
        default=(),
        doc="The properties of a mirror that were set on this cluster: they no longer follow those of"
        " its source. Deleting a property lets it follow again. Specific to Kompakt.",
    )

    @property
    def is_mirror(self) -> bool:
        """Whether a link fills the topic."""
        return self.mirror_link != ""

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner keeps the last record of each key; records then need keys."""
        return self.policy_compacts and not (self.is_mirror and self.mirror_compaction == "off")

    @property
    def policy_compacts(self) -> bool:
        """Whether the policy holds compact; on a mirror mirror.compaction decides, too."""
        return "compact" in self.cleanup_policy or "dedupe" in self.cleanup_policy

    @property
    def keeps_unkeyed_records(self) -> bool:
        """Whether the cleaner keeps records without a key."""
        return self.compaction_unkeyed_records == "keep"

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted by age and size. A mirror follows its source's log start."""
        return "delete" in self.cleanup_policy and not self.is_mirror

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker sets the records' timestamps."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def reserved_segment_bytes(self) -> int:
        """The disk space that is allocated for a new segment, in bytes."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def stored_codec(self) -> StoredCodec | None:
        """The codec with which batches are stored; None keeps what each producer chose."""
        match self.compression_type:
            case "producer":
                return None
            case "uncompressed":
                return StoredCodec(Codec.NONE)
            case "gzip":
                level = self.compression_gzip_level
                return StoredCodec(Codec.GZIP, None if level == -1 else level)
            case "snappy":
                return StoredCodec(Codec.SNAPPY)
            case "lz4":
                return StoredCodec(Codec.LZ4, self.compression_lz4_level)
            case _:
                return StoredCodec(Codec.ZSTD, self.compression_zstd_level)

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], defaults: Self) -> Self:
        """Returns the configuration of a topic that overrides some of the broker's `defaults`.

        Args:
            overrides: texts by Kafka's property names, as a client sends them.

        Raises:
            ConfigError: a property is unknown, or values are wrong, alone or together.
        """
        unknown = next((name for name in overrides if name not in fields_by_property(cls)), None)
        if unknown is not None:
            raise ConfigError(f"Unknown topic config name: {unknown}")
        values: dict[str, Any] = parse_fields(cls, overrides)
        if values.get("internal_segment_bytes") is not None:
            values["segment_bytes"] = values["internal_segment_bytes"]
        config = dataclasses.replace(defaults, **values)
        config._check_together()
        return config

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]:
        """Yield every property with its value."""
        for field, declared in properties_of(type(self)).items():
            yield declared, getattr(self, field)

    def _check_together(self) -> None:
        _check_throttled("leader", self.leader_replication_throttled_replicas)
        _check_throttled("follower", self.follower_replication_throttled_replicas)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                "conflict topic config setting"
                f" min.compaction.lag.ms ({self.min_compaction_lag_ms}) >"
                f" max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        for pattern in self.compaction_hold_groups:
            if "*" in pattern[:-1] or pattern in ("", "*"):
                raise ConfigError(
                    f"Invalid value {pattern[:100]!r} for configuration compaction.hold.groups: must be"
                    " the name of a group, or a prefix of one or more characters followed by *"
                )


def _check_throttled(role: str, replicas: tuple[str, ...]) -> None:
    """Raise ConfigError unless the text means all replicas or is a list of them."""
    if replicas != ("*",) and not all(map(THROTTLED_REPLICA.fullmatch, replicas)):
        raise ConfigError(
            f"Invalid value {','.join(replicas)[:100]!r} for configuration"
            f" {role}.replication.throttled.replicas: must be the literal '*' or a list of replicas"
            " in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

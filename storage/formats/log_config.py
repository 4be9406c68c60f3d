"""The settings of a topic, with Kafka's names, defaults and bounds, in these parts:

    compaction_config.py     when a log is cleaned, and what stays
    unused_log_config.py     settings that have no effect
    log_config.py            the rest; reading and overriding all of them

`LogConfig` joins the parts, so every setting is an attribute of it. A topic stores the settings that it
overrides; all other settings come from the broker's defaults, which in turn come from broker-wide
synonyms such as `log.segment.bytes`. `server/topics/topics.py` changes the settings of a topic while the
broker runs.

Source: Apache Kafka, TopicConfig.java, LogConfig.java, ServerTopicConfigSynonyms.java.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from protocol.records.compression import Codec
from storage.formats.compaction_config import CompactionConfig
from storage.formats.config_property import (
    BOOLEAN,
    DAY_MS,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MINUTE_MS,
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
from storage.formats.unused_log_config import UnusedLogConfig

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""By the values of `compression.type` and `compaction.compression.type`."""


MURMUR2, CRC32 = "murmur2", "crc32"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(UnusedLogConfig, CompactionConfig):
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

    view_partitioner: str = prop(
        "view.partitioner",
        STRING,
        default="none",
        choices=("none", MURMUR2, CRC32),
        doc="How all producers of the topic choose the partition of a record by its key. kompakt get"
        " then looks into this partition alone. murmur2 is the default of the clients in Java, Python"
        " and JavaScript, crc32 that of librdkafka. none: it looks into all partitions, which finds a"
        " key however it was sent. Specific to Kompakt.",
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
    def expires_values(self) -> bool:
        """Whether the broker appends tombstones for values whose time is over. On a mirror its source
        does."""
        is_set = self.compaction_ttl_ms >= 0 or self.compaction_ttl_header != ""
        return is_set and self.policy_compacts and not self.is_mirror

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
        codec = _CODECS[self.compression_type]
        return None if codec is None else StoredCodec(codec, self.codec_levels[codec])

    @property
    def cleaned_codec(self) -> Codec | None:
        """The codec of the batches that cleaning rebuilds; None keeps the codec of each."""
        return _CODECS[self.compaction_compression_type]

    @property
    def codec_levels(self) -> tuple[int | None, ...]:
        """The level of each codec, by its number; None is the codec's own default."""
        gzip = None if self.compression_gzip_level == -1 else self.compression_gzip_level
        return None, gzip, None, self.compression_lz4_level, self.compression_zstd_level

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
        config.check_throttled()
        config.check_compaction()
        return config

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]:
        """Yield every property with its value."""
        for field, declared in properties_of(type(self)).items():
            yield declared, getattr(self, field)

"""The part of a topic's settings that is about compaction: when a log is cleaned, and what stays.

Source: Apache Kafka, TopicConfig.java, LogConfig.java.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storage.formats.compaction_history import (
    THINNING,
    VERSIONS,
    CompactionHistory,
    history_from,
)
from storage.formats.compaction_strategy import (
    STRATEGY,
    STRATEGY_HEADER,
    CompactionStrategy,
    Ranking,
    strategy_of,
    with_timestamps,
)
from storage.formats.compaction_ttl import NO_TTL, TTL, TTL_HEADER, CompactionTtl
from storage.formats.compaction_window import Windows, parse_windows
from storage.formats.config_property import (
    BOOLEAN,
    DAY_MS,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MINUTE_MS,
    STRING,
    ConfigError,
    Synonym,
    prop,
)

MIN_SEGMENT_DEAD_RATIO = "min.segment.dead.ratio"
STRATEGY_HEADER_BYTES_MAX = 254
"""A key sidecar has that much space for the name."""

TTL_HEADER_BYTES_MAX = 254
"""As for the other header; longer names would only cost each record."""


COMPARE_KEYS = "compaction.compare.keys"
UNKEYED = "compaction.unkeyed.records"
UNKEYED_TOPIC = "compaction.unkeyed.topic"


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """When a compacted log is cleaned, and which records cleaning keeps."""

    __slots__ = ()

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
        UNKEYED,
        STRING,
        default="drop",
        choices=("drop", "keep", "move"),
        doc="What cleaning does with records without a key, which a topic can hold from before it was"
        " compacted: drop, as Kafka does, counted in the cleaner's metrics; keep; or move to the topic"
        " of compaction.unkeyed.topic. Specific to Kompakt.",
    )
    compaction_unkeyed_topic: str = prop(
        UNKEYED_TOPIC,
        STRING,
        default="",
        doc="The topic to which cleaning moves records without a key, if compaction.unkeyed.records is"
        " move. It must exist and must not be compacted. Headers say where each record comes from. While"
        " that topic cannot take them, the records stay. Specific to Kompakt.",
    )

    compaction_strategy: str = prop(
        STRATEGY,
        STRING,
        default="offset",
        choices=("offset", "timestamp", "header"),
        doc="Which record of a key is its last value: the one with the highest offset, the highest"
        " timestamp, or the highest version in a header (compaction.strategy.header); of equal ones the"
        " last. Tombstones count like other records. Not for internal topics. Specific to Kompakt"
        " (KIP-280).",
    )
    compaction_strategy_header: str = prop(
        STRATEGY_HEADER,
        STRING,
        default="",
        doc="The name of the header that holds a record's version, if compaction.strategy is header. The"
        " value has 8 bytes, a signed big-endian integer; a record without it has a lower version than"
        " every record with one. Specific to Kompakt.",
    )

    compaction_versions: int = prop(
        VERSIONS,
        INT,
        default=1,
        at_least=1,
        doc="How many values of a key cleaning keeps: its last one and those before it. A deletion"
        " removes all of them. Only with compaction.strategy=offset; not for internal topics. Specific"
        " to Kompakt.",
    )
    compaction_thinning: str = prop(
        THINNING,
        STRING,
        default="",
        doc="Which older values of a key cleaning keeps, by their age, such as: all for 1h, one per 1h"
        " for 1d, one per 1d for 1y. Units: s, m, h, d, w, y. The last value of each period stays, and"
        " the last one that is older than all steps. Values that compaction.versions keeps stay in any"
        " case. Ages count from the timestamps of the records. Only with compaction.strategy=offset; not"
        " for internal topics. Specific to Kompakt.",
    )

    compaction_ttl_ms: int = prop(
        TTL,
        LONG,
        default=NO_TTL,
        at_least=NO_TTL,
        unit="ms",
        doc="How long after its timestamp a key's last value expires; -1: never. The broker then appends"
        " a tombstone for the key, and cleaning drops the value. A record may set its own time"
        " (compaction.ttl.header). Only where cleanup.policy has compact; not for internal topics."
        " Specific to Kompakt.",
    )
    compaction_ttl_header: str = prop(
        TTL_HEADER,
        STRING,
        default="",
        doc="The name of the header in which a record sets how long after its timestamp it expires, in"
        " milliseconds: ASCII digits. It takes precedence over compaction.ttl.ms; any other value counts"
        " as absent, and is reported. Empty: records set none. Not for internal topics. Specific"
        " to Kompakt.",
    )
    min_segment_dead_ratio: float = prop(
        MIN_SEGMENT_DEAD_RATIO,
        DOUBLE,
        default=0.0,
        at_least=0,
        at_most=1,
        doc="A pass leaves a segment as it is if less than this share of the bytes of its records is"
        " superseded, so that it is not rewritten for a few of them; they go once there are enough, and"
        " at the latest after max.compaction.lag.ms. What a tombstone deletes goes with the first pass,"
        " as do tombstones that are due and aborted records. 0: every superseded record goes. Only with"
        " compaction.strategy=offset; not for internal topics. Specific to Kompakt.",
    )
    compaction_compare_keys: bool = prop(
        COMPARE_KEYS,
        BOOLEAN,
        default=False,
        doc="Before a pass removes superseded records, it compares their keys with those of later"
        " records, byte by byte. Without it, 128 bits of a secret hash distinguish keys. The pass"
        " reads the segments with superseded records, and those that came since the last pass, once"
        " more. If a key has no later record, the pass fails and nothing is removed. Specific to"
        " Kompakt.",
    )
    compaction_compression_type: str = prop(
        "compaction.compression.type",
        STRING,
        default="producer",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        doc="The codec of the batches that cleaning rebuilds because some of their records go: producer"
        " keeps each batch's own. Batches in which nothing changes stay as they are. The level is that"
        " of compression.gzip.level, compression.lz4.level or compression.zstd.level. Specific to"
        " Kompakt.",
    )
    compaction_window: str = prop(
        "compaction.window",
        STRING,
        default="",
        synonyms=(Synonym(name="log.cleaner.window"),),
        doc="When passes over the topic may run by themselves, in UTC, such as 22:00-06:00 or Mon-Fri"
        " 22:00-06:00, Sat-Sun 00:00-24:00; empty: always. A pass stops at the end of its window, and"
        " keeps what it has done. Outside of it run: passes on request, for max.compaction.lag.ms, and"
        " while a disk is nearly full. Specific to Kompakt.",
    )
    compaction_priority: str = prop(
        "compaction.priority",
        STRING,
        default="normal",
        choices=("low", "normal", "high"),
        doc="How urgent passes over the topic are: high goes before topics of normal priority that have"
        " waited less than half an hour longer, and those before low. No topic waits for ever. Specific"
        " to Kompakt.",
    )
    compaction_io_max_bytes_per_second: float = prop(
        "compaction.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="How much the passes over the topic may read and write together, besides"
        " log.cleaner.io.max.bytes.per.second for all topics. A running pass follows a change at once."
        " Specific to Kompakt.",
    )

    compaction_undo_ms: int = prop(
        "compaction.undo.ms",
        LONG,
        default=0,
        at_least=0,
        unit="ms",
        doc="How long a pass over the topic can be undone (kompakt compact undo): the segments that it"
        " has replaced stay on the disk that long, within compaction.undo.bytes; 0: not at all. They"
        " count neither in the size of the log nor in its dirty ratio. Values and keys that a pass"
        " removes are on the disk until then. Specific to Kompakt.",
    )
    compaction_undo_bytes: int = prop(
        "compaction.undo.bytes",
        LONG,
        default=1 << 30,
        at_least=0,
        unit="bytes",
        doc="How many bytes of replaced segments a partition keeps for compaction.undo.ms. Beyond that"
        " the oldest passes can no longer be undone, and a pass that replaces more cannot be undone at"
        " all. Specific to Kompakt.",
    )

    @property
    def keeps_replaced_segments(self) -> bool:
        """Whether passes can be undone."""
        return self.compaction_undo_ms > 0 and self.compaction_undo_bytes > 0

    @property
    def windows(self) -> Windows:
        """When passes may run by themselves."""
        return parse_windows(self.compaction_window)

    @property
    def io_rate(self) -> float:
        """Bytes per second that the topic's passes may read and write; infinite without a limit."""
        rate = self.compaction_io_max_bytes_per_second
        return math.inf if rate == DOUBLE_MAX else rate

    @property
    def history(self) -> CompactionHistory:
        """Which values of a key stay beside its last one."""
        return history_from(self.compaction_versions, self.compaction_thinning)

    @property
    def ttl(self) -> CompactionTtl:
        """After which time values expire; `LogConfig.expires_values` says whether they do at all."""
        return CompactionTtl(self.compaction_ttl_ms, self.compaction_ttl_header)

    @property
    def spares_segments(self) -> bool:
        """Whether passes leave segments of which only a small share is superseded."""
        return self.min_segment_dead_ratio > 0 and not self.strategy.has_versions

    @property
    def strategy(self) -> CompactionStrategy:
        """How the records of a key are ranked, and what key sidecars have for that and for thinning."""
        strategy = strategy_of(self.compaction_strategy, self.compaction_strategy_header)
        return with_timestamps(strategy) if self.history.steps else strategy

    @property
    def moves_unkeyed_records(self) -> bool:
        """Whether the cleaner moves records without a key to another topic."""
        return self.compaction_unkeyed_records == "move"

    @property
    def keeps_unkeyed_records(self) -> bool:
        """Whether the cleaner keeps records without a key."""
        return self.compaction_unkeyed_records == "keep"

    def check_compaction(self) -> None:
        """Raise ConfigError unless the values fit together."""
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
        self._check_strategy()
        self._check_history()
        self._check_ttl()
        if self.moves_unkeyed_records and not self.compaction_unkeyed_topic:
            raise ConfigError(
                f"{UNKEYED}=move needs {UNKEYED_TOPIC}, the topic that takes records without a key"
            )
        try:
            parse_windows(self.compaction_window)
        except ValueError as error:
            raise ConfigError(
                f"Invalid value {self.compaction_window[:200]!r} for configuration compaction.window:"
                f" {error}"
            ) from error

    def _check_strategy(self) -> None:
        name = self.compaction_strategy_header
        if self.compaction_strategy == Ranking.HEADER.value and not name:
            raise ConfigError(
                "compaction.strategy=header needs compaction.strategy.header, the name of the header"
                " that holds a record's version"
            )
        if len(name.encode()) > STRATEGY_HEADER_BYTES_MAX:
            raise ConfigError(
                f"Invalid value {name[:100]!r} for configuration compaction.strategy.header:"
                f" must have at most {STRATEGY_HEADER_BYTES_MAX} bytes"
            )

    def _check_ttl(self) -> None:
        name = self.compaction_ttl_header
        if len(name.encode()) > TTL_HEADER_BYTES_MAX:
            raise ConfigError(
                f"Invalid value {name[:100]!r} for configuration {TTL_HEADER}: must have at most"
                f" {TTL_HEADER_BYTES_MAX} bytes"
            )
        if name and name == self.strategy.header:
            raise ConfigError(
                f"{TTL_HEADER} and {STRATEGY_HEADER} are both {name[:100]}: one header cannot hold a"
                " record's version and its time to live"
            )

    def _check_history(self) -> None:
        try:
            history = self.history
        except ValueError as error:
            raise ConfigError(
                f"Invalid value {self.compaction_thinning[:200]!r} for configuration {THINNING}: {error}"
            ) from error
        if history.keeps_more and self.strategy.has_versions:
            raise ConfigError(
                f"{STRATEGY}={self.compaction_strategy} keeps only the last value of a key: it does not"
                f" go together with {VERSIONS} or {THINNING}"
            )
        if self.min_segment_dead_ratio > 0 and self.strategy.has_versions:
            raise ConfigError(
                f"{STRATEGY}={self.compaction_strategy} needs one record of each key below the clean"
                f" offset, so it cannot be combined with {MIN_SEGMENT_DEAD_RATIO}"
            )

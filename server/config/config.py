"""The broker's configuration: each property declared once, with Kafka's name.

The broker-wide defaults of topic settings (`log.segment.bytes`, `message.max.bytes`, ...) are not
repeated here: `storage/formats/log_config.py` declares them as synonyms, and `BrokerConfig.log_defaults`
holds the resulting configuration (`server/topics/defaults.py`). `server/config/network_config.py`
declares the network's properties, `server/config/group_config.py` those of groups.
`server/config/sources.py` reads the texts from file, environment and command line.

Source: Apache Kafka, KafkaConfig.java, SocketServerConfigs.java, ServerLogConfigs.java.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cleaner.pacing.settings import CleanerSettings
from cleaner.pacing.throttle import IoRates
from server.config.transaction_config import TransactionConfig
from server.topics.defaults import log_defaults_from, topic_synonyms
from storage.batches.validate import DECOMPRESSED_BYTES_MAX
from storage.formats.config_property import (
    BOOLEAN,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigError,
    ConfigProperty,
    Value,
    fields_by_property,
    parse_fields,
    problems_in,
    prop,
    properties_of,
)
from storage.formats.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(TransactionConfig):
    """The broker's configuration at its start, immutable. `server/config/broker_configs.py` overrides
    its dynamic properties with the values that clients set while the broker runs."""

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
    log_cleaner_enable: bool = prop(
        "log.cleaner.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether the cleaner runs, which compacts topics with cleanup.policy=compact.",
    )
    log_cleaner_threads: int = prop(
        "log.cleaner.threads",
        INT,
        default=1,
        at_least=0,
        at_most=256,
        doc="The number of cleaning passes that run in parallel. A change while the broker runs can"
        " halve or double it at most; passes that exceed a lower number run to their end.",
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=134_217_728,
        at_least=1,
        unit="bytes",
        doc="Memory for the offset maps of all cleaner threads together, 24 bytes for each key.",
    )
    log_cleaner_io_buffer_size: int = prop(
        "log.cleaner.io.buffer.size",
        INT,
        default=524_288,
        at_least=0,
        unit="bytes",
        doc="Memory for the read buffers of all cleaner threads together.",
    )
    log_cleaner_io_buffer_load_factor: float = prop(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        default=0.9,
        at_least=0.01,
        at_most=0.99,
        doc="How full an offset map may get (despite the property's name). A higher value fits more keys"
        " into a pass but makes it slower; values above 0.95 count as 0.95.",
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="The most bytes per second that all cleaner threads together read and write.",
    )
    log_cleaner_io_read_bytes_per_second: float = prop(
        "log.cleaner.io.read.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="The most bytes per second that all cleaner threads together read. Specific to Kompakt.",
    )
    log_cleaner_io_write_bytes_per_second: float = prop(
        "log.cleaner.io.write.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="The most bytes per second that all cleaner threads together write. Specific to Kompakt.",
    )
    log_cleaner_decompressed_batch_bytes_max: int = prop(
        "log.cleaner.decompressed.batch.bytes.max",
        LONG,
        default=256 << 20,
        at_least=DECOMPRESSED_BYTES_MAX,
        unit="bytes",
        doc="The most bytes that the records of one batch may take uncompressed, so that no batch can"
        " exhaust a cleaner thread's memory. The compression ratio does not matter. Compacted topics"
        " refuse larger batches, but an older log may contain one: it is not cleaned, and loses nothing."
        " Specific to Kompakt.",
    )
    log_cleaner_latency_guard_enable: bool = prop(
        "log.cleaner.latency.guard.enable",
        BOOLEAN,
        default=True,
        doc="Whether the cleaner slows down while produces take more than twice as long as without it."
        " Specific to Kompakt.",
    )
    log_cleaner_disk_pressure_free_bytes: int = prop(
        "log.cleaner.disk.pressure.free.bytes",
        LONG,
        default=0,
        at_least=0,
        unit="bytes",
        doc="While a log directory's disk has less than this free, the cleaner takes that directory's"
        " logs first, those that free the most bytes per byte of I/O, and ignores its I/O budgets and"
        " the latency guard. 0: never, because a broker must not break an operator's budget unasked."
        " Specific to Kompakt.",
    )
    log_cleaner_verify_enable: bool = prop(
        "log.cleaner.verify.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether a cleaning pass reads its output back and verifies it against the source segments"
        " before it replaces them. Specific to Kompakt.",
    )
    log_cleaner_key_sidecar_enable: bool = prop(
        "log.cleaner.key.sidecar.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether the cleaner stores the hashes of the keys beside each sealed segment of a compacted"
        " topic, 24 bytes for each record, so that the next pass reads only the segments that it"
        " rewrites. Specific to Kompakt.",
    )
    log_cleaner_remote_enable: bool = prop(
        "log.cleaner.remote.enable",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether other processes that send the token of the data directory, such as `kompakt"
        " pipeline clean`, may lease logs over the HTTP listener and clean them; the broker verifies and"
        " commits the result. Specific to Kompakt.",
    )
    log_cleaner_remote_lease_ms: int = prop(
        "log.cleaner.remote.lease.ms",
        LONG,
        default=300_000,
        at_least=1_000,
        unit="ms",
        dynamic=False,
        doc="A lease on a log ends if it is not renewed for this long: its files are removed, and the"
        " broker's own cleaner may take the log again. Specific to Kompakt.",
    )
    log_cleaner_backoff_ms: int = prop(
        "log.cleaner.backoff.ms",
        LONG,
        default=15_000,
        at_least=0,
        unit="ms",
        doc="How long the cleaner waits when no log needs cleaning.",
    )
    metrics_partitions_max: int = prop(
        "metrics.partitions.max",
        INT,
        default=200,
        at_least=0,
        dynamic=False,
        doc="The most partitions that a metric by partition lists, and the most topics that a cleaner"
        " metric by topic lists. Kafka's metrics list the largest partitions, the cleaner's those with"
        " the largest values. Sums by topic include every partition. Specific to Kompakt.",
    )
    log_cleaner_history_bytes_max: int = prop(
        "log.cleaner.history.bytes.max",
        LONG,
        default=8 << 20,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="The most bytes that the history of cleaning passes takes on disk, in the log directory that"
        " holds the metadata; a pass takes about 800 bytes, and the oldest are removed first. 0: no"
        " history. Specific to Kompakt.",
    )
    producer_id_expiration_ms: int = prop(
        "producer.id.expiration.ms",
        INT,
        default=86_400_000,
        at_least=1,
        unit="ms",
        doc="The broker forgets an idempotent producer that was silent for this long.",
    )
    controlled_shutdown_timeout_ms: int = prop(
        "controlled.shutdown.timeout.ms",
        LONG,
        default=20_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="How long a stopping broker waits for the requests that it is processing. Specific to"
        " Kompakt.",
    )
    log_defaults: LogConfig = field(default_factory=LogConfig)
    """The defaults of topics, from the broker-wide synonyms."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The configured texts, by property; every other property has its default."""

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The log directories; at least one."""
        return tuple(path for path in self.log_dirs if path) or (self.log_dir,)

    @property
    def metadata_directory(self) -> str:
        """The log directory that holds the metadata store."""
        return self.metadata_log_dir or self.data_directories[0]

    def cleaner_settings(self) -> CleanerSettings:
        """Returns the cleaner's part of the configuration."""
        return CleanerSettings(
            threads=max(self.log_cleaner_threads, 1),
            dedupe_buffer_size=self.log_cleaner_dedupe_buffer_size,
            io_buffer_size=self.log_cleaner_io_buffer_size,
            io_buffer_load_factor=self.log_cleaner_io_buffer_load_factor,
            io_rates=IoRates(
                total=_rate(self.log_cleaner_io_max_bytes_per_second),
                read=_rate(self.log_cleaner_io_read_bytes_per_second),
                write=_rate(self.log_cleaner_io_write_bytes_per_second),
            ),
            verify=self.log_cleaner_verify_enable,
            keeps_key_sidecars=self.log_cleaner_key_sidecar_enable,
            backoff_ms=self.log_cleaner_backoff_ms,
            decompressed_bytes_max=self.log_cleaner_decompressed_batch_bytes_max,
        )

    @property
    def cleans(self) -> bool:
        """Whether the cleaner runs at all."""
        return self.log_cleaner_enable and self.log_cleaner_threads > 0

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> BrokerConfig:
        """Returns the configuration with these properties, and defaults for the rest.

        Unknown properties are ignored with a warning each; Kafka properties without effect here are
        logged in one line.

        Raises:
            ConfigError: a value is wrong, alone or together with others.
        """
        texts = _without_old_names(texts)
        own = {name: text for name, text in texts.items() if name in fields_by_property(cls)}
        problems = problems_in(_declared(cls), texts)
        if problems:
            raise ConfigError.of_all(problems)
        values: dict[str, Any] = parse_fields(cls, own)
        config = cls(**values, log_defaults=log_defaults_from(texts), given=dict(texts))
        config.resolved_listeners()
        config.resolved_http_listener()
        if config.metadata_directory not in config.data_directories:
            raise ConfigError(
                f"metadata.log.dir: {config.metadata_log_dir} is not one of log.dirs, "
                + ",".join(config.data_directories)
            )
        unused = texts.keys() - own.keys() - topic_synonyms().keys()
        if unused:
            from server.config.unused_properties import log_unused

            log_unused(unused, known_properties())
        return config

    def overridden_by(self, texts: Mapping[str, str]) -> BrokerConfig:
        """Returns this configuration with the texts of dynamic properties in place of its own.

        Raises:
            ConfigError: a property is unknown, or values are wrong, alone or together.
        """
        defaults = texts.keys() & topic_synonyms().keys()
        own = {name: text for name, text in texts.items() if name not in defaults}
        values: dict[str, Any] = parse_fields(type(self), own)
        if defaults:
            values["log_defaults"] = log_defaults_from({**self.given, **texts})
        return replace(self, **values)

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]:
        """Yields every broker property with its value, topic defaults included, for DescribeConfigs."""
        for name, declared in properties_of(type(self)).items():
            yield declared, getattr(self, name)
        for synonym_field, declared, _ in topic_synonyms().values():
            if declared.name not in fields_by_property(type(self)):
                yield declared, self._synonym_value(synonym_field, declared)

    def _synonym_value(self, field_name: str, declared: ConfigProperty) -> Value:
        """Returns the effective value for the strongest synonym, the configured one for any other."""
        if properties_of(LogConfig)[field_name].synonyms[0].name == declared.name:
            value: Value = getattr(self.log_defaults, field_name)
            return value
        given = self.given.get(declared.name)
        return None if given is None else declared.parse(given)


def _rate(bytes_per_second: float) -> float:
    """Returns the rate, infinite for Kafka's "no limit", which is the largest double."""
    return math.inf if bytes_per_second == DOUBLE_MAX else bytes_per_second


def known_properties() -> set[str]:
    """Returns the names of all properties that have an effect on this broker."""
    return set(fields_by_property(BrokerConfig)) | set(topic_synonyms())


def _without_old_names(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the texts with `broker.id`, the name before KRaft, replaced by `node.id`."""
    if "broker.id" not in texts:
        return texts
    rest = {name: text for name, text in texts.items() if name != "broker.id"}
    return {"node.id": texts["broker.id"]} | rest


def _declared(config: type[BrokerConfig]) -> dict[str, ConfigProperty]:
    """Returns all properties whose texts are validated: the broker's and the defaults of topics."""
    own = {declared.name: declared for declared in properties_of(config).values()}
    return own | {name: declared for name, (_, declared, _) in topic_synonyms().items()}

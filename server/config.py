"""The broker's configuration: each property declared once, with Kafka's name.

The broker-wide defaults of topic settings (`log.segment.bytes`, `message.max.bytes`, ...) are not
repeated here: `storage/log_config.py` declares them as synonyms, `BrokerConfig.log_defaults`
holds what they come to (`server/topic_defaults.py`). The network's part is
`server/network_config.py`, that of groups `server/group_config.py`. Where the texts come from is
`server/config_sources.py`'s affair.

Source: Apache Kafka, KafkaConfig.java, SocketServerConfigs.java, ServerLogConfigs.java.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cleaner.settings import CleanerSettings
from cleaner.throttle import IoRates
from server.topic_defaults import log_defaults_from, topic_synonyms
from server.transaction_config import TransactionConfig
from storage.config_property import (
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
from storage.log_config import LogConfig
from storage.validate import DECOMPRESSED_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(TransactionConfig):
    """What a broker was told at its start, constant while it runs; `server/broker_configs.py` puts
    what was set since in place of the dynamic properties."""

    node_id: int = prop(
        "node.id",
        INT,
        default=1,
        at_least=0,
        dynamic=False,
        doc="This broker's number; clients name it by that.",
    )
    cluster_id: str = prop(
        "cluster.id",
        STRING,
        default="",
        dynamic=False,
        doc="The cluster's id; without one it is drawn at the first start and kept with the data.",
    )
    log_dir: str = prop(
        "log.dir",
        STRING,
        default="data",
        dynamic=False,
        doc="The directory of the data, where log.dirs names none.",
    )
    log_dirs: tuple[str, ...] = prop(
        "log.dirs",
        LIST,
        default=(),
        dynamic=False,
        doc="Directories of the data, separated by commas; partitions are spread over them.",
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
        doc="Partitions of a topic that is created without saying how many.",
    )
    partitions_max: int = prop(
        "max.topic.partitions",
        INT,
        default=100_000,
        at_least=1,
        dynamic=False,
        doc="The most partitions of one topic, so that one request cannot exhaust the machine. A"
        " property of Kompakt's own.",
    )
    default_replication_factor: int = prop(
        "default.replication.factor",
        INT,
        default=1,
        at_least=1,
        at_most=1,
        dynamic=False,
        doc="Replicas of a topic that is created without saying how many; there is one broker.",
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
        doc="Whether acks=all is answered, and a record readable, only once it is on disk. False"
        " is Kafka's promise: a crash of the machine may lose what was acknowledged, but for"
        " topics whose flush.messages is 1. A property of Kompakt's own.",
    )
    log_flush_scheduler_interval_ms: int = prop(
        "log.flush.scheduler.interval.ms",
        LONG,
        default=1_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often logs are looked at for what has waited longer than flush.ms for a sync; only"
        " where flush.on.acks.all is false. Kafka's own default is never.",
    )
    log_roll_check_interval_ms: int = prop(
        "log.roll.check.interval.ms",
        LONG,
        default=1_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often logs are looked at for segments whose segment.ms is over. A property of"
        " Kompakt's own.",
    )
    log_retention_check_interval_ms: int = prop(
        "log.retention.check.interval.ms",
        LONG,
        default=300_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often logs are looked at for segments that retention.ms, retention.bytes or"
        " DeleteRecords let go.",
    )
    num_recovery_threads_per_data_dir: int = prop(
        "num.recovery.threads.per.data.dir",
        INT,
        default=2,
        at_least=1,
        doc="So many logs of a directory are recovered at once after a crash. Set while the broker"
        " runs, it counts at the next start.",
    )
    log_flush_offset_checkpoint_interval_ms: int = prop(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        default=60_000,
        at_least=1,
        unit="ms",
        dynamic=False,
        doc="How often the recovery points of logs that have grown by 8 MiB or more are moved to"
        " their ends; a start after a crash scans what lies behind them.",
    )
    log_cleaner_enable: bool = prop(
        "log.cleaner.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether compacted topics are compacted.",
    )
    log_cleaner_threads: int = prop(
        "log.cleaner.threads",
        INT,
        default=1,
        at_least=0,
        at_most=256,
        doc="Cleaning passes that run at the same time. While the broker runs it can be halved or"
        " doubled at most, each time; passes that are too many are not stopped.",
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=134_217_728,
        at_least=1,
        unit="bytes",
        doc="Memory for the offset maps of all cleaner threads together; a key takes 24 bytes.",
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
        doc="How full an offset map may get (in spite of its name). Fuller: more keys a pass, but"
        " slower; more than 0.95 counts as that.",
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="What all cleaner threads together may read and write a second.",
    )
    log_cleaner_io_read_bytes_per_second: float = prop(
        "log.cleaner.io.read.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="What all cleaner threads together may read a second. A property of Kompakt's own.",
    )
    log_cleaner_io_write_bytes_per_second: float = prop(
        "log.cleaner.io.write.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        doc="What all cleaner threads together may write a second. A property of Kompakt's own.",
    )
    log_cleaner_decompressed_batch_bytes_max: int = prop(
        "log.cleaner.decompressed.batch.bytes.max",
        LONG,
        default=256 << 20,
        at_least=DECOMPRESSED_BYTES_MAX,
        unit="bytes",
        doc="The most that the records of one batch may take uncompressed, so that no batch can take a"
        " cleaner thread's memory: a log with a larger one rests from cleaning, and nothing of it is"
        " lost. How well a batch compresses does not matter. No topic takes a larger one while it is"
        " compacted; logs from before may have some. A property of Kompakt's own.",
    )
    log_cleaner_latency_guard_enable: bool = prop(
        "log.cleaner.latency.guard.enable",
        BOOLEAN,
        default=True,
        doc="Whether the cleaner steps back while produces take more than twice as long as without"
        " it. A property of Kompakt's own.",
    )
    log_cleaner_disk_pressure_free_bytes: int = prop(
        "log.cleaner.disk.pressure.free.bytes",
        LONG,
        default=0,
        at_least=0,
        unit="bytes",
        doc="While a log directory's disk has less than this free, the cleaner takes its logs first,"
        " those that free the most bytes by byte of I/O, and no I/O budget and no guard holds it"
        " back. 0: never, because a broker must not break an operator's budget unasked. A property of"
        " Kompakt's own.",
    )
    log_cleaner_verify_enable: bool = prop(
        "log.cleaner.verify.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether a cleaning pass reads what it wrote again and proves it against the source"
        " before it replaces anything. A property of Kompakt's own.",
    )
    log_cleaner_key_sidecar_enable: bool = prop(
        "log.cleaner.key.sidecar.enable",
        BOOLEAN,
        default=True,
        dynamic=False,
        doc="Whether the cleaner keeps, beside each sealed segment of a compacted topic, the hashes of"
        " its keys, 24 bytes a record, so that the next pass reads only what it rewrites. A property"
        " of Kompakt's own.",
    )
    log_cleaner_remote_enable: bool = prop(
        "log.cleaner.remote.enable",
        BOOLEAN,
        default=False,
        dynamic=False,
        doc="Whether other processes that show the token of the data directory, such as `kompakt"
        " pipeline clean`, may take logs over the HTTP listener and clean them, for the broker to"
        " verify and commit. A property of Kompakt's own.",
    )
    log_cleaner_remote_lease_ms: int = prop(
        "log.cleaner.remote.lease.ms",
        LONG,
        default=300_000,
        at_least=1_000,
        unit="ms",
        dynamic=False,
        doc="A lease on a log that is not renewed for so long ends: its files are removed, and the"
        " broker's own cleaner takes the log again. A property of Kompakt's own.",
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
        doc="So many partitions, and so many topics, a metric by partition or by topic of the cleaner"
        " shows at most: of Kafka's metrics the largest partitions, of the cleaner's those with the"
        " largest values. Sums by topic leave no partition out. A property of Kompakt's own.",
    )
    log_cleaner_history_bytes_max: int = prop(
        "log.cleaner.history.bytes.max",
        LONG,
        default=8 << 20,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="What the history of cleaning passes may take on disk, in the log directory that holds the"
        " metadata; a pass takes about 800 bytes, and the oldest go first. 0: none is kept. A"
        " property of Kompakt's own.",
    )
    producer_id_expiration_ms: int = prop(
        "producer.id.expiration.ms",
        INT,
        default=86_400_000,
        at_least=1,
        unit="ms",
        doc="An idempotent producer that was silent for so long is forgotten.",
    )
    controlled_shutdown_timeout_ms: int = prop(
        "controlled.shutdown.timeout.ms",
        LONG,
        default=20_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="How long a stopping broker waits for requests it has begun. A property of Kompakt's"
        " own.",
    )
    log_defaults: LogConfig = field(default_factory=LogConfig)
    """The defaults of topics, from the broker-wide synonyms."""
    given: Mapping[str, str] = field(default_factory=dict)
    """The texts that were configured, by property; everything else has its default."""

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The log directories; at least one."""
        return tuple(path for path in self.log_dirs if path) or (self.log_dir,)

    @property
    def metadata_directory(self) -> str:
        """The log directory that holds the metadata store."""
        return self.metadata_log_dir or self.data_directories[0]

    def cleaner_settings(self) -> CleanerSettings:
        """The part of the configuration that the cleaner takes."""
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
        """The configuration that these properties make, with defaults for the rest.

        Unknown properties are left out and warned of, those of Kafka in one line of information.

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
            from server.unused_properties import tell_of_unused

            tell_of_unused(unused, known_properties())
        return config

    def overridden_by(self, texts: Mapping[str, str]) -> BrokerConfig:
        """This configuration with what was set while the broker runs.

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
        """Every broker property with its value, topic defaults included, for DescribeConfigs."""
        for name, declared in properties_of(type(self)).items():
            yield declared, getattr(self, name)
        for synonym_field, declared, _ in topic_synonyms().values():
            if declared.name not in fields_by_property(type(self)):
                yield declared, self._synonym_value(synonym_field, declared)

    def _synonym_value(self, field_name: str, declared: ConfigProperty) -> Value:
        """The strongest synonym shows the value that holds, any other the one that it was given."""
        if properties_of(LogConfig)[field_name].synonyms[0].name == declared.name:
            value: Value = getattr(self.log_defaults, field_name)
            return value
        given = self.given.get(declared.name)
        return None if given is None else declared.parse(given)


def _rate(bytes_per_second: float) -> float:
    """A rate; Kafka says "no limit" with the largest number there is."""
    return math.inf if bytes_per_second == DOUBLE_MAX else bytes_per_second


def known_properties() -> set[str]:
    """Every property that the broker acts on."""
    return set(fields_by_property(BrokerConfig)) | set(topic_synonyms())


def _without_old_names(texts: Mapping[str, str]) -> Mapping[str, str]:
    """`broker.id` is what `node.id` was called before KRaft."""
    if "broker.id" not in texts:
        return texts
    rest = {name: text for name, text in texts.items() if name != "broker.id"}
    return {"node.id": texts["broker.id"]} | rest


def _declared(config: type[BrokerConfig]) -> dict[str, ConfigProperty]:
    """All properties whose texts can be wrong by themselves: the broker's, and its topics' defaults."""
    own = {declared.name: declared for declared in properties_of(config).values()}
    return own | {name: declared for name, (_, declared, _) in topic_synonyms().items()}

"""The broker's configuration: each property declared once, with Kafka's name.

The broker-wide defaults of topic settings (`log.segment.bytes`, `message.max.bytes`, ...) are not
repeated here: `storage/log_config.py` declares them as synonyms, `BrokerConfig.log_defaults`
holds what they come to. Where the texts come from is `server/config_sources.py`'s affair.

Source: Apache Kafka, KafkaConfig.java, SocketServerConfigs.java, ServerLogConfigs.java.
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cleaner.settings import CleanerSettings
from server.addresses import HttpListener, Listener, parse_http_listener, resolve_listeners
from server.kafka_properties import is_known_to_kafka
from storage.config_property import (
    BOOLEAN,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    INT_MAX,
    LIST,
    LONG,
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
from storage.log_config import LogConfig

_log = logging.getLogger("server.config")

LIKENESS_OF_A_SLIP = 0.92
"""Two names that share this much differ in a letter or two: 0.97 for log.segmnt.bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker was told at its start; constant while it runs."""

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
    listeners: str = prop(
        "listeners",
        STRING,
        default="PLAINTEXT://127.0.0.1:9092",
        dynamic=False,
        doc="Where clients connect: NAME://host:port, separated by commas. No host means all"
        " addresses; port 0 takes a free port.",
    )
    advertised_listeners: str = prop(
        "advertised.listeners",
        STRING,
        default="",
        dynamic=False,
        doc="Where clients are told to connect, if that is not as in listeners: behind a port"
        " mapping, in a container, through a proxy.",
    )
    listener_security_protocol_map: tuple[str, ...] = prop(
        "listener.security.protocol.map",
        LIST,
        default=("PLAINTEXT:PLAINTEXT",),
        dynamic=False,
        doc="NAME:PROTOCOL for each listener whose name is not a protocol's. PLAINTEXT is the only"
        " protocol so far.",
    )
    controller_listener_names: tuple[str, ...] = prop(
        "controller.listener.names",
        LIST,
        default=(),
        dynamic=False,
        doc="Listeners of Kafka's controllers; they are not opened, there is nothing behind them.",
    )
    http_listener: str = prop(
        "http.listener",
        STRING,
        default="127.0.0.1:9644",
        dynamic=False,
        doc="host:port of /metrics and /health; empty for none. A property of Kompakt's own.",
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
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes",
        INT,
        default=100 << 20,
        at_least=1,
        unit="bytes",
        dynamic=False,
        doc="The largest request; a longer one closes its connection.",
    )
    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes",
        INT,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="SO_SNDBUF of a connection; -1, unlike Kafka's 102400, leaves it to the system, which"
        " fits it to the connection.",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes",
        INT,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="SO_RCVBUF of a connection; -1, unlike Kafka's 102400, leaves it to the system, which"
        " fits it to the connection.",
    )
    fetch_max_bytes: int = prop(
        "fetch.max.bytes",
        INT,
        default=55 << 20,
        at_least=1024,
        unit="bytes",
        dynamic=False,
        doc="The most that one Fetch answer holds, but for its first batch.",
    )
    socket_listen_backlog_size: int = prop(
        "socket.listen.backlog.size",
        INT,
        default=50,
        at_least=1,
        dynamic=False,
        doc="Connections that the system holds before they are accepted.",
    )
    max_connections: int = prop(
        "max.connections",
        INT,
        default=INT_MAX,
        at_least=0,
        dynamic=False,
        doc="The most connections at a time, over all listeners; more are closed at once.",
    )
    max_connections_per_ip: int = prop(
        "max.connections.per.ip",
        INT,
        default=INT_MAX,
        at_least=0,
        dynamic=False,
        doc="The most connections at a time from one address.",
    )
    connections_max_idle_ms: int = prop(
        "connections.max.idle.ms",
        LONG,
        default=600_000,
        at_least=-1,
        unit="ms",
        dynamic=False,
        doc="A connection on which nothing moved for so long is closed; -1: never.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes",
        LONG,
        default=-1,
        at_least=-1,
        unit="bytes",
        dynamic=False,
        doc="Bytes of requests that may be in memory at a time; beyond it the broker stops reading"
        " until some are answered. -1: no bound.",
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
        dynamic=False,
        doc="So many logs of a directory are recovered at once after a crash.",
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
        dynamic=False,
        doc="Cleaning passes that run at the same time.",
    )
    log_cleaner_dedupe_buffer_size: int = prop(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=134_217_728,
        at_least=1,
        unit="bytes",
        dynamic=False,
        doc="Memory for the offset maps of all cleaner threads together; a key takes 24 bytes.",
    )
    log_cleaner_io_buffer_size: int = prop(
        "log.cleaner.io.buffer.size",
        INT,
        default=524_288,
        at_least=0,
        unit="bytes",
        dynamic=False,
        doc="Memory for the read buffers of all cleaner threads together.",
    )
    log_cleaner_io_buffer_load_factor: float = prop(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        default=0.9,
        at_least=0.01,
        at_most=0.99,
        dynamic=False,
        doc="How full an offset map may get (in spite of its name). Fuller: more keys a pass, but"
        " slower.",
    )
    log_cleaner_io_max_bytes_per_second: float = prop(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        at_least=1,
        unit="bytes",
        dynamic=False,
        doc="What all cleaner threads together may read and write a second.",
    )
    log_cleaner_backoff_ms: int = prop(
        "log.cleaner.backoff.ms",
        LONG,
        default=15_000,
        at_least=0,
        unit="ms",
        dynamic=False,
        doc="How long the cleaner waits when no log needs cleaning.",
    )
    producer_id_expiration_ms: int = prop(
        "producer.id.expiration.ms",
        INT,
        default=86_400_000,
        at_least=1,
        unit="ms",
        dynamic=False,
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

    def resolved_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open. Raises ConfigError."""
        return resolve_listeners(
            listeners=self.listeners,
            advertised=self.advertised_listeners,
            protocol_map=self.listener_security_protocol_map,
            controllers=self.controller_listener_names,
        )

    def resolved_http_listener(self) -> HttpListener | None:
        """Where the HTTP endpoint listens, None for nowhere. Raises ConfigError."""
        return parse_http_listener(self.http_listener)

    def cleaner_settings(self) -> CleanerSettings:
        """The part of the configuration that the cleaner takes."""
        rate = self.log_cleaner_io_max_bytes_per_second
        return CleanerSettings(
            threads=max(self.log_cleaner_threads, 1),
            dedupe_buffer_size=self.log_cleaner_dedupe_buffer_size,
            io_buffer_size=self.log_cleaner_io_buffer_size,
            io_buffer_load_factor=self.log_cleaner_io_buffer_load_factor,
            io_max_bytes_per_second=math.inf if rate == DOUBLE_MAX else rate,
            backoff_ms=self.log_cleaner_backoff_ms,
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
        values: dict[str, Any] = parse_fields(cls, own)
        config = cls(**values, log_defaults=log_defaults_from(texts), given=dict(texts))
        config.resolved_listeners()
        config.resolved_http_listener()
        if config.metadata_directory not in config.data_directories:
            raise ConfigError(
                f"metadata.log.dir: {config.metadata_log_dir} is not one of log.dirs, "
                + ",".join(config.data_directories)
            )
        _tell_of_unused(texts.keys() - own.keys() - topic_synonyms().keys())
        return config

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]:
        """Every broker property with its value, topic defaults included, for DescribeConfigs."""
        for name, declared in properties_of(type(self)).items():
            yield declared, getattr(self, name)
        for synonym_field, declared, _ in topic_synonyms().values():
            if declared.name not in fields_by_property(type(self)):
                yield declared, self._synonym_value(synonym_field, declared)

    def _synonym_value(self, field_name: str, declared: ConfigProperty) -> Value:
        """A synonym that was given shows its own value, one that stands first the effective one."""
        if declared.name in self.given:
            return declared.parse(self.given[declared.name])
        first = properties_of(LogConfig)[field_name].synonyms[0].name == declared.name
        value: Value = getattr(self.log_defaults, field_name)
        return value if first else None


def topic_synonyms() -> dict[str, tuple[str, ConfigProperty, int]]:
    """Broker-wide synonyms of topic settings: the field, the synonym as a property, its scale."""
    return {
        synonym.name: (name, _as_broker_property(declared, synonym), synonym.scale)
        for name, declared in properties_of(LogConfig).items()
        for synonym in declared.synonyms
    }


def log_defaults_from(texts: Mapping[str, str]) -> LogConfig:
    """The defaults of topics that broker-wide `texts` make. Raises ConfigError."""
    synonyms = topic_synonyms()
    overrides: dict[str, str] = {}
    for name, declared in properties_of(LogConfig).items():
        given = [synonym for synonym in declared.synonyms if synonym.name in texts]
        for synonym in given:
            synonyms[synonym.name][1].parse(texts[synonym.name])
        if given:
            text = texts[given[0].name]
            scaled = text if given[0].scale == 1 else _scaled(int(text), given[0].scale)
            overrides[properties_of(LogConfig)[name].name] = scaled
    return LogConfig.from_overrides(overrides, LogConfig())


def _scaled(count: int, scale: int) -> str:
    """A duration in the topic property's unit; negative ones mean "never" and stay."""
    return str(count * scale if count > 0 else count)


def _as_broker_property(declared: ConfigProperty, synonym: Synonym) -> ConfigProperty:
    """A topic property under the name and the unit of its broker-wide synonym."""
    scaled = synonym.scale != 1
    return ConfigProperty(
        name=synonym.name,
        type=INT if scaled else declared.type,
        default=None if scaled else declared.default,
        at_least=declared.at_least,
        at_most=declared.at_most,
        choices=declared.choices,
        unit={3_600_000: "hours", 60_000: "minutes"}.get(synonym.scale, declared.unit),
        dynamic=False,
        internal=declared.internal,
        synonyms=(),
        doc=f"The default of topics for {declared.name}. {declared.doc}",
    )


def known_properties() -> set[str]:
    """Every property that the broker acts on."""
    return set(fields_by_property(BrokerConfig)) | set(topic_synonyms())


def _without_old_names(texts: Mapping[str, str]) -> Mapping[str, str]:
    """`broker.id` is what `node.id` was called before KRaft."""
    if "broker.id" not in texts:
        return texts
    rest = {name: text for name, text in texts.items() if name != "broker.id"}
    return {"node.id": texts["broker.id"]} | rest


def _tell_of_unused(names: Iterable[str]) -> None:
    """One line for all of Kafka's properties that do nothing here; one for each unknown one."""
    of_kafka: list[str] = []
    for name in sorted(names):
        near = difflib.get_close_matches(name, known_properties(), n=1)
        # Kafka's names are known by their prefixes: a misspelt one is told by what it is near to.
        if is_known_to_kafka(name) and not (near and _likeness(name, near[0]) > LIKENESS_OF_A_SLIP):
            of_kafka.append(name)
            continue
        hint = f"; did you mean {near[0]}?" if near else ""
        _log.warning("%s: unknown property, ignored%s", name, hint)
    if of_kafka:
        _log.info("Kafka properties without effect here: %s", ", ".join(of_kafka))


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()

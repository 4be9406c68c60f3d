"""The broker's configuration: each property declared once, with Kafka's name, in one of these parts.

    network_config.py        listeners, connections, their memory
    listeners/sasl_config.py SASL: mechanisms, users, sessions
    listeners/tls_config.py  certificates, trust, protocols of TLS
    group_config.py          consumer groups
    transaction_config.py    transactions
    storage_config.py        directories, topics, durability, recovery
    cleaner_config.py        the cleaner
    audit_config.py          the audit log
    replog_config.py         snapshots of the metadata, and of other logs of state machines
    replication_config.py    how mirrors fetch from their source
    quota_config.py          quotas of clients
    authorization_config.py  whether ACLs are enforced
    connection_config.py     limits on connections
    schema_registry_config.py  the registry of schemas, with which values are decoded
    standby_config.py        whether another broker has taken over, and which ones to ask
    config.py                the rest; reading and overriding all of them

`BrokerConfig` joins the parts, so every property is an attribute of it (`config.log_cleaner_threads`).
The parts have no slots, because a class can extend only one class that has slots.

The broker-wide defaults of topic settings (`log.segment.bytes`, `message.max.bytes`, ...) are not
repeated here: `storage/formats/log_config.py` declares them as synonyms, and `BrokerConfig.log_defaults`
holds the resulting configuration (`server/topics/defaults.py`). `server/config/sources.py` reads the
texts from file, environment and command line.

Source: Apache Kafka, KafkaConfig.java.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from server.config.audit_config import AuditConfig
from server.config.authorization_config import AuthorizationConfig
from server.config.cleaner_config import CleanerConfig
from server.config.connection_config import ConnectionConfig
from server.config.group_config import GroupConfig
from server.config.listeners.addresses import HTTP, Listener, check_inter_broker, parse_addresses
from server.config.listeners.open_listeners import refuse_open_listeners
from server.config.listeners.overrides import PREFIX as LISTENER_PREFIX
from server.config.listeners.overrides import (
    listeners_in,
    override_declared,
    override_problems,
    overrides_in,
    texts_of_listener,
)
from server.config.listeners.sasl_config import SaslConfig
from server.config.listeners.sasl_listeners import (
    SaslListener,
    is_sasl_property,
    resolve_http_logins,
    resolve_sasl_listeners,
)
from server.config.listeners.tls_config import TlsConfig
from server.config.network_config import NetworkConfig
from server.config.quota_config import QuotaConfig
from server.config.replication_config import ReplicationConfig
from server.config.replog_config import ReplogConfig
from server.config.schema_registry_config import SchemaRegistryConfig
from server.config.standby_config import FENCED_BY, StandbyConfig
from server.config.storage_config import StorageConfig
from server.config.transaction_config import TransactionConfig
from server.config.view_config import ViewConfig
from server.topics.defaults import log_defaults_from, topic_synonyms
from storage.formats.config_property import (
    INT,
    LONG,
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

_log = logging.getLogger("server.config.config")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    AuditConfig,
    CleanerConfig,
    ReplicationConfig,
    ReplogConfig,
    StorageConfig,
    TransactionConfig,
    GroupConfig,
    NetworkConfig,
    SaslConfig,
    QuotaConfig,
    ConnectionConfig,
    AuthorizationConfig,
    SchemaRegistryConfig,
    StandbyConfig,
    TlsConfig,
    ViewConfig,
):
    """The broker's configuration at its start, immutable. `server/config/broker_configs.py` overrides
    its dynamic properties with the values that clients set while the broker runs."""

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
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The configured texts, by property; every other property has its default."""
    listener_texts: Mapping[str, str] = field(default_factory=dict)
    """The texts that hold for one listener, by their full names (`listener.name.<name>.<property>`)."""

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
        of_listeners = overrides_in(cls, texts)
        problems = problems_in(_declared(cls), texts) + override_problems(cls, of_listeners)
        if problems:
            raise ConfigError.of_all(problems)
        values: dict[str, Any] = parse_fields(cls, own)
        config = cls(
            **values,
            log_defaults=log_defaults_from(texts),
            given=dict(texts),
            listener_texts=of_listeners,
        )
        config.check_listeners()
        config.resolved_sasl_listeners()
        config.resolved_super_users()
        config.check_view_suffix()
        config.check_schema_registry()
        config.connections_max_by_ip()
        config.check_fence()
        config.warn_of_strange_listeners()
        if config.metadata_directory not in config.data_directories:
            raise ConfigError(
                f"metadata.log.dir: {config.metadata_log_dir} is not one of log.dirs, "
                + ",".join(config.data_directories)
            )
        unused = texts.keys() - own.keys() - topic_synonyms().keys() - of_listeners.keys()
        unused = {name for name in unused if not is_sasl_property(name)}
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
        of_listeners = overrides_in(type(self), texts)
        problems = override_problems(type(self), of_listeners)
        if problems:
            raise ConfigError.of_all(problems)
        own = {
            name: text
            for name, text in texts.items()
            if name not in defaults and name not in of_listeners
        }
        values: dict[str, Any] = parse_fields(type(self), own)
        if of_listeners:
            values["listener_texts"] = {**self.listener_texts, **of_listeners}
        if defaults:
            values["log_defaults"] = log_defaults_from({**self.given, **texts})
        return replace(self, **values)

    def resolved_sasl_listeners(self) -> dict[str, SaslListener]:
        """Returns what each SASL listener accepts, by its name, and HTTP if that has logins.

        Raises ConfigError.
        """
        accepted = resolve_sasl_listeners(self.resolved_listeners(), self.given)
        http = resolve_http_logins(self.http_authentication, self.given)
        return accepted if http is None else {**accepted, HTTP: http}

    @property
    def http_authenticates(self) -> bool:
        """Whether the HTTP endpoint learns who its clients are: by a login, or by a certificate."""
        http = self.resolved_http_listener()
        has_tls = http is not None and http.has_tls
        asks = has_tls and self.for_listener(HTTP).ssl_client_auth != "none"
        return bool(self.http_authentication) or asks

    @property
    def internal_listener(self) -> str:
        """The name of the listener on which followers fetch the metadata; empty if none is set."""
        return self.inter_broker_listener_name.upper()

    def check_fence(self) -> None:
        """Check the peers, and that a fence can be lifted again. Raises ConfigError."""
        self.check_fenced_by()
        self.check_peers()
        given = (
            FENCED_BY if self.broker_fenced_by else "standby.peers" if self.standby_peers else ""
        )
        if given and not self.internal_listener:
            raise ConfigError(
                f"{given}: set inter.broker.listener.name first: it names the only listener that a"
                " fenced broker opens, and without one nobody could end that"
            )

    def tls_listeners(self) -> tuple[Listener, ...]:
        """Returns the listeners with TLS, the HTTP endpoint among them. Raises ConfigError."""
        http = self.resolved_http_listener()
        every = (*self.resolved_listeners(), *([] if http is None else [http.as_listener()]))
        return tuple(each for each in every if each.security_protocol.has_tls)

    def limits_by_listener(self, field: str) -> Mapping[str, int]:
        """Returns the own limits of listeners, by their names. Raises ConfigError.

        Args:
            field: the field of the limit on all listeners: `max_connections`, for example.
        """
        name = properties_of(type(self))[field].name
        return {
            listener.name: getattr(self.for_listener(listener.name), field)
            for listener in self.resolved_listeners()
            if name in texts_of_listener(self.listener_texts, listener.name)
        }

    def for_listener(self, name: str) -> BrokerConfig:
        """Returns the configuration as it holds for a listener, with `listener.name.<name>.` applied."""
        own = texts_of_listener(self.listener_texts, name)
        values: dict[str, Any] = parse_fields(type(self), own)
        return replace(self, **values) if own else self

    def check_listeners(self) -> None:
        """Check the addresses, the protocols and the authentication of all listeners.

        Raises ConfigError.
        """
        http = self.resolved_http_listener()
        listeners = self.resolved_listeners()
        check_inter_broker(
            name=self.inter_broker_listener_name.upper(),
            protocol=self.given.get("security.inter.broker.protocol", "").strip(),
            listeners=listeners,
        )
        is_secured = http is not None and (http.has_tls or self.http_authentication)
        if is_secured and any(each.name == HTTP for each in listeners):
            raise ConfigError(
                f"listeners: the name {HTTP} is reserved for http.listener; choose another"
            )
        if not self.allow_unauthenticated_listeners:
            refuse_open_listeners(
                listeners,
                http,
                http_logins=self.http_authentication,
                client_auth=lambda name: self.for_listener(name).ssl_client_auth,
            )

    def warn_of_strange_listeners(self) -> None:
        """Log a warning for each `listener.name.<name>.` whose listener is not configured."""
        known = {each.name.lower() for each in parse_addresses("listeners", self.listeners)}
        known |= {name.lower() for name in (*self.controller_listener_names, HTTP)}
        for name in sorted(listeners_in(self.listener_texts) - known):
            _log.warning("%s%s: listeners has no such listener, ignored", LISTENER_PREFIX, name)

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]:
        """Yields every broker property with its value, topic defaults included, for DescribeConfigs."""
        for name, declared in properties_of(type(self)).items():
            yield declared, getattr(self, name)
        for synonym_field, declared, _ in topic_synonyms().values():
            if declared.name not in fields_by_property(type(self)):
                yield declared, self._synonym_value(synonym_field, declared)
        for name, text in sorted(self.listener_texts.items()):
            override = override_declared(type(self), name)
            assert override is not None, "only declared overrides are kept"
            yield override, override.parse(text)

    def _synonym_value(self, field_name: str, declared: ConfigProperty) -> Value:
        """Returns the effective value for the strongest synonym, the configured one for any other."""
        if properties_of(LogConfig)[field_name].synonyms[0].name == declared.name:
            value: Value = getattr(self.log_defaults, field_name)
            return value
        given = self.given.get(declared.name)
        return None if given is None else declared.parse(given)


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

"""The rows of DescribeConfigs: each property with its value and the source of the value.

Source: Apache Kafka, ConfigHelper.scala, DescribeConfigsResponse.java.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from server.config.broker_configs import BrokerConfigs
from server.config.broker_loggers import logger_levels
from server.config.group_overrides import GroupOverrides
from storage.formats.config_property import ConfigProperty, Value, properties_of
from storage.formats.log_config import LogConfig


class ResourceType(enum.IntEnum):
    """The kind of resource that has a configuration. On the wire: values never change."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """The source of a value. On the wire: values never change."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


Synonyms = tuple[tuple[str, str | None, ConfigSource], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One property with its value, as text."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: Synonyms = ()
    """Name, value and source of every setting that defines the value, the strongest first."""
    type: int = 0
    """As in DescribeConfigs; 0: unknown."""
    doc: str = ""
    is_sensitive: bool = False


def topic_rows(
    config: LogConfig, overrides: Mapping[str, str], broker: BrokerConfigs
) -> Iterable[ConfigRow]:
    """Yields the configuration of a topic that overrides some of the broker's defaults."""
    for field, declared in properties_of(LogConfig).items():
        if declared.internal:
            continue
        synonyms = _synonyms(declared, overrides, broker, own=ConfigSource.TOPIC)
        yield _row(declared, getattr(config, field), synonyms, read_only=False)


def group_rows(name: str, groups: GroupOverrides, broker: BrokerConfigs) -> Iterable[ConfigRow]:
    """Yields the configuration of a group, even if no such group exists."""
    overrides = groups.of(name)
    for declared, default in groups.defaults.rows():
        value = declared.parse(overrides[declared.name]) if declared.name in overrides else default
        synonyms = _synonyms(declared, overrides, broker, own=ConfigSource.GROUP)
        yield _row(declared, value, synonyms, read_only=False)


def broker_rows(configs: BrokerConfigs) -> Iterable[ConfigRow]:
    """Yields the broker's configuration."""
    for declared, value in configs.config.rows():
        if declared.internal:
            continue
        synonyms = _broker_synonyms(declared, configs)
        yield _row(declared, value, synonyms, read_only=not declared.dynamic)


def cluster_rows(configs: BrokerConfigs) -> Iterable[ConfigRow]:
    """Yields only the properties that were set for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    for row in broker_rows(configs):
        of_cluster = tuple(each for each in row.synonyms if each[2] == source)
        if of_cluster:
            yield replace(row, value=of_cluster[0][1], source=source, synonyms=of_cluster)


def logger_rows() -> Iterable[ConfigRow]:
    """Yields the loggers of this process with their levels."""
    for name, level in logger_levels().items():
        yield ConfigRow(name=name, value=level, source=ConfigSource.BROKER_LOGGER, read_only=False)


def _row(
    declared: ConfigProperty, value: Value, synonyms: Synonyms, *, read_only: bool
) -> ConfigRow:
    return ConfigRow(
        name=declared.name,
        value=_text(declared, value),
        source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
        read_only=read_only,
        synonyms=synonyms,
        type=declared.type,
        doc=declared.doc,
        is_sensitive=declared.is_sensitive,
    )


def _broker_synonyms(declared: ConfigProperty, configs: BrokerConfigs) -> Synonyms:
    name = declared.name
    synonyms = [
        (name, _text(declared, declared.parse(given[name])), source)
        for given, source in _broker_texts(configs)
        if name in given
    ]
    if declared.default is not None:
        synonyms.append((name, _text(declared, declared.default), ConfigSource.DEFAULT))
    return tuple(synonyms)


def _broker_texts(configs: BrokerConfigs) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
    """Returns the broker's configured texts by their source, the strongest first."""
    return (
        (configs.own, ConfigSource.DYNAMIC_BROKER),
        (configs.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (configs.config.given, ConfigSource.STATIC_BROKER),
    )


def _synonyms(
    declared: ConfigProperty,
    overrides: Mapping[str, str],
    broker: BrokerConfigs,
    *,
    own: ConfigSource,
) -> Synonyms:
    """Returns the settings that define a property of a topic or group, the strongest first."""
    synonyms: list[tuple[str, str | None, ConfigSource]] = []
    if declared.name in overrides:
        value = _text(declared, declared.parse(overrides[declared.name]))
        synonyms.append((declared.name, value, own))
    synonyms += [
        (synonym.name, given[synonym.name], source)
        for given, source in _broker_texts(broker)
        for synonym in declared.synonyms
        if synonym.name in given
    ]
    if declared.synonyms:
        default = _text(declared, declared.default)
        synonyms.append((declared.synonyms[0].name, default, ConfigSource.DEFAULT))
    return tuple(synonyms)


def _text(declared: ConfigProperty, value: Value) -> str | None:
    """Returns a value as text; None for a password."""
    return None if declared.is_sensitive else declared.format(value)

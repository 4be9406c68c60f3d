"""DescribeConfigs (key 32), v1-v4.

Behaviour: the properties of topics and of this broker, all of them or those named, each with its
value, where the value comes from, what would hold without it (synonyms), type and documentation.
Values read back exactly as they were set: Connect and Schema Registry refuse to start unless
`cleanup.policy` says `compact`. Topics can be changed (AlterConfigs), and so can those properties of
the broker that are not read-only; the broker with the empty name is what was set for all of them.
Versions: v1 config_source, synonyms · v3 config_type, documentation (KIP-569).
Not implemented: broker loggers, client metrics, groups.

Source: Apache Kafka, ConfigHelper.scala, DescribeConfigsResponse.java.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol.error_codes import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from server.broker_configs import CLUSTER, BrokerConfigs
from server.dispatch import RequestContext
from server.topic import TopicRefused
from server.topic_names import fault_of_name
from storage.config_property import ConfigProperty, Value, properties_of
from storage.log_config import LogConfig


class ResourceType(enum.IntEnum):
    """What has a configuration. On the wire: values never change."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """Where a value comes from. On the wire: values never change."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One property with its value, as text."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    declared: ConfigProperty
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...]
    """Name, value and source of everything that gives it a value, the strongest first."""

    @property
    def is_sensitive(self) -> bool:
        return self.declared.is_sensitive


async def handle(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe each resource on its own."""
    return DescribeConfigsResponse(
        results=tuple(_describe(asked, request, context) for asked in request.resources)
    )


def refuse(
    request: DescribeConfigsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=tuple(_refused(asked, error_code, message) for asked in request.resources)
    )


def topic_rows(
    config: LogConfig, overrides: Mapping[str, str], broker: BrokerConfigs
) -> Iterable[ConfigRow]:
    """The configuration of a topic that overrides some of the broker's defaults."""
    for field, declared in properties_of(LogConfig).items():
        if declared.internal:
            continue
        synonyms = _topic_synonyms(declared, overrides, broker)
        yield ConfigRow(
            name=declared.name,
            value=_text(declared, getattr(config, field)),
            source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
            read_only=False,
            declared=declared,
            synonyms=synonyms,
        )


def broker_rows(configs: BrokerConfigs) -> Iterable[ConfigRow]:
    """The broker's configuration."""
    for declared, value in configs.config.rows():
        if declared.internal:
            continue
        synonyms = _broker_synonyms(declared, configs)
        yield ConfigRow(
            name=declared.name,
            value=_text(declared, value),
            source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
            read_only=not declared.dynamic,
            declared=declared,
            synonyms=synonyms,
        )


def cluster_rows(configs: BrokerConfigs) -> Iterable[ConfigRow]:
    """What was set for all brokers, and nothing else."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    for row in broker_rows(configs):
        of_cluster = tuple(each for each in row.synonyms if each[2] == source)
        if of_cluster:
            yield replace(row, value=of_cluster[0][1], source=source, synonyms=of_cluster)


def _broker_synonyms(
    declared: ConfigProperty, configs: BrokerConfigs
) -> tuple[tuple[str, str | None, ConfigSource], ...]:
    name = declared.name
    synonyms = [
        (name, _text(declared, declared.parse(given[name])), source)
        for given, source in _given(configs)
        if name in given
    ]
    if declared.default is not None:
        synonyms.append((name, _text(declared, declared.default), ConfigSource.DEFAULT))
    return tuple(synonyms)


def _given(configs: BrokerConfigs) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
    """The texts that were given to the broker, the strongest first."""
    return (
        (configs.own, ConfigSource.DYNAMIC_BROKER),
        (configs.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (configs.config.given, ConfigSource.STATIC_BROKER),
    )


def _topic_synonyms(
    declared: ConfigProperty, overrides: Mapping[str, str], broker: BrokerConfigs
) -> tuple[tuple[str, str | None, ConfigSource], ...]:
    synonyms: list[tuple[str, str | None, ConfigSource]] = []
    if declared.name in overrides:
        value = _text(declared, declared.parse(overrides[declared.name]))
        synonyms.append((declared.name, value, ConfigSource.TOPIC))
    synonyms += [
        (synonym.name, given[synonym.name], source)
        for given, source in _given(broker)
        for synonym in declared.synonyms
        if synonym.name in given
    ]
    if declared.synonyms:
        default = _text(declared, declared.default)
        synonyms.append((declared.synonyms[0].name, default, ConfigSource.DEFAULT))
    return tuple(synonyms)


def _text(declared: ConfigProperty, value: Value) -> str | None:
    """A value as it is shown: never that of a password."""
    return None if declared.is_sensitive else declared.format(value)


def _describe(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    if asked.resource_type == ResourceType.TOPIC:
        return _describe_topic(asked, request, context)
    if asked.resource_type == ResourceType.BROKER:
        return _describe_broker(asked, request, context)
    text = f"Unsupported resource type: {asked.resource_type}"
    return _refused(asked, ErrorCode.INVALID_REQUEST, text)


def _describe_topic(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    fault = fault_of_name(asked.resource_name)
    if fault is not None:
        return _refused(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    topic = context.broker.topics.get(asked.resource_name)
    if topic is None:
        unknown = TopicRefused.unknown(asked.resource_name)
        return _refused(asked, unknown.error_code, unknown.message)
    return _result(
        asked, request, topic_rows(topic.config, topic.overrides, context.broker.configs)
    )


def _describe_broker(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    node_id = context.broker.node.node_id
    if asked.resource_name == CLUSTER:
        return _result(asked, request, cluster_rows(context.broker.configs))
    if asked.resource_name != str(node_id):
        text = f"Unexpected broker id, expected {node_id}, but received {asked.resource_name}"
        return _refused(asked, ErrorCode.INVALID_REQUEST, text)
    return _result(asked, request, broker_rows(context.broker.configs))


def _result(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, rows: Iterable[ConfigRow]
) -> DescribeConfigsResult:
    wanted = asked.configuration_keys
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(_entry(row, request) for row in rows if wanted is None or row.name in wanted),
    )


def _entry(row: ConfigRow, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in row.synonyms
        )
        if request.include_synonyms
        else (),
        config_type=row.declared.type,
        documentation=row.declared.doc if request.include_documentation else None,
    )


def _refused(
    asked: DescribeConfigsResource, error_code: ErrorCode, message: str
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=(),
    )

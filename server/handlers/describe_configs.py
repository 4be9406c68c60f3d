"""DescribeConfigs (key 32), v1-v4.

Behaviour: returns the properties of topics, groups and this broker, all of them or those named, each
with its value, its source, the values that would apply without it (synonyms), type and documentation.
Values read back exactly as they were set: Connect and Schema Registry refuse to start unless
`cleanup.policy` is `compact`. AlterConfigs can change topics, and those properties of the broker that
are not read-only. The broker with the empty name stands for the cluster-wide defaults. The levels of
this broker's loggers are a resource too (KIP-412). Every group has a configuration, even if the group
does not exist. The view of a topic's last values has the topic's configuration, read-only.
Versions: v1 config_source, synonyms · v3 config_type, documentation (KIP-569).
Not implemented: client metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.config.broker_configs import CLUSTER
from server.config.rows import (
    ConfigRow,
    ResourceType,
    broker_rows,
    cluster_rows,
    group_rows,
    logger_rows,
    topic_rows,
)
from server.handlers.shared.config_permissions import config_refusal
from server.request_context import RequestContext
from server.security.acls import Operation
from server.topics.names import fault_of_name
from server.topics.topic import TopicRefused
from server.views.latest_view import LatestView
from server.views.snapshot_topic import SnapshotTopic

Described = dict[tuple[int, str], DescribeConfigsResult]
"""Resources with all their properties, by type and name."""


async def handle(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe each resource independently; one that is named repeatedly is looked up once."""
    whole: Described = {}
    results = [
        await _describe(asked, whole, request, context)
        async for asked in context.pace.paced(request.resources)
    ]
    return DescribeConfigsResponse(results=tuple(results))


def refuse(
    request: DescribeConfigsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=lazy_array(lambda asked: _refused(asked, error_code, message), request.resources)
    )


async def _describe(
    asked: DescribeConfigsResource,
    whole: Described,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResult:
    """Returns the requested properties of a resource, or all if the request names none."""
    key = (asked.resource_type, asked.resource_name)
    result = whole.get(key)
    if result is None:
        result = whole[key] = _describe_whole(asked, request, context)
    if asked.configuration_keys is None or not result.configs:
        return result
    wanted = {name async for name in context.pace.paced(asked.configuration_keys)}
    return replace(result, configs=tuple(row for row in result.configs if row.name in wanted))


def _describe_whole(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    refusal = config_refusal(
        Operation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name, context
    )
    if refusal is not None:
        return _refused(asked, refusal.error_code, refusal.message)
    if asked.resource_type == ResourceType.TOPIC:
        return _describe_topic(asked, request, context)
    if asked.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return _describe_broker(asked, request, context)
    if asked.resource_type == ResourceType.GROUP:
        return _describe_group(asked, request, context)
    text = f"Unsupported resource type: {asked.resource_type}"
    return _refused(asked, ErrorCode.INVALID_REQUEST, text)


def _describe_topic(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    fault = fault_of_name(asked.resource_name)
    if fault is not None:
        return _refused(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    found = context.broker.readable_topics.get(asked.resource_name)
    if found is None:
        unknown = TopicRefused.unknown(asked.resource_name)
        return _refused(asked, unknown.error_code, unknown.message)
    topic = found.source if isinstance(found, LatestView) else found
    rows = topic_rows(topic.config, topic.overrides, context.broker.configs)
    if isinstance(found, LatestView | SnapshotTopic):
        rows = (replace(row, read_only=True) for row in rows)
    return _result(asked, request, rows)


def _describe_broker(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    node_id = context.broker.node.node_id
    is_logger = asked.resource_type == ResourceType.BROKER_LOGGER
    if asked.resource_name == CLUSTER and not is_logger:
        return _result(asked, request, cluster_rows(context.broker.configs))
    if asked.resource_name != str(node_id):
        text = f"Unexpected broker id, expected {node_id}, but received {asked.resource_name}"
        return _refused(asked, ErrorCode.INVALID_REQUEST, text)
    rows = logger_rows() if is_logger else broker_rows(context.broker.configs)
    return _result(asked, request, rows)


def _describe_group(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    if not asked.resource_name:
        return _refused(asked, ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    broker = context.broker
    rows = group_rows(asked.resource_name, broker.group_overrides, broker.configs)
    return _result(asked, request, rows)


def _result(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, rows: Iterable[ConfigRow]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(_entry(row, request) for row in rows),
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
        config_type=row.type,
        documentation=row.doc if request.include_documentation else None,
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

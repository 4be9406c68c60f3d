"""ListConfigResources (key 74), v0-v1.

Behaviour: lists the names of the resources that have a configuration: the topics, this broker, its
loggers, and the groups with overrides. There are no client metrics, the only type that v0 can request.
Any other type gets UNSUPPORTED_VERSION, as in Kafka.
Versions: v1 resource types (KIP-1142).
Source: Apache Kafka, KafkaApis.scala `handleListConfigResources`.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.wire.error_codes import ErrorCode
from server.config.rows import ResourceType
from server.request_context import RequestContext

TYPES_SINCE = 1
LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


async def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of each requested type."""
    if context.header.api_version < TYPES_SINCE:
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=())
    types = dict.fromkeys(request.resource_types or LISTED)
    if any(each not in LISTED for each in types):
        return refuse(request, context, ErrorCode.UNSUPPORTED_VERSION, "")
    listed = [
        ConfigResource(resource_name=name, resource_type=each)
        for each in types
        async for name in context.pace.paced(_names(each, context))
    ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=tuple(listed))


def refuse(
    request: ListConfigResourcesRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error_code, config_resources=())


def _names(type_: int, context: RequestContext) -> Iterator[str]:
    if type_ == ResourceType.TOPIC:
        yield from (topic.name for topic in context.broker.topics.all())
    elif type_ in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        yield str(context.broker.node.node_id)
    elif type_ == ResourceType.GROUP:
        yield from context.broker.group_overrides.names()

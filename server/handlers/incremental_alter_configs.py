"""IncrementalAlterConfigs (key 44), v0-v1.

Behaviour: as AlterConfigs, but what a request does not name stays as it is. A property is set, goes
back to its default, or, if it is a list, gets or loses elements; one that is not overridden yet gets
or loses them from the broker's default.

Source: KIP-339; Apache Kafka, ConfigurationControlManager.java.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from server.config_changes import ConfigChange
from server.dispatch import RequestContext
from server.handlers.alter_configs import ResourceChange, alter_resources
from server.topic import TopicRefused


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the configuration of each resource on its own."""
    asked = [_resource_change(resource) for resource in request.resources]
    faults = await alter_resources(asked, context, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            _answer(resource, fault)
            for resource, fault in zip(request.resources, faults, strict=True)
        )
    )


def refuse(
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> IncrementalAlterConfigsResponse:
    fault = TopicRefused(error_code=error_code, message=message)
    return IncrementalAlterConfigsResponse(
        responses=tuple(_answer(each, fault) for each in request.resources)
    )


def _resource_change(resource: AlterConfigsResource) -> ResourceChange:
    return ResourceChange(
        type=resource.resource_type,
        name=resource.resource_name,
        changes=tuple(
            ConfigChange(name=each.name, operation=each.config_operation, value=each.value)
            for each in resource.configs
        ),
        replaces=False,
    )


def _answer(
    resource: AlterConfigsResource, fault: TopicRefused | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if fault is None else fault.error_code,
        error_message=None if fault is None else fault.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )

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
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from server.config_alteration import ResourceChange, alter_resources, answers_of
from server.config_changes import ConfigChange
from server.dispatch import RequestContext
from server.topic import TopicRefused


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the configuration of each resource on its own."""
    asked = [_resource_change(resource) for resource in request.resources]
    faults = await alter_resources(asked, context, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=answers_of(request.resources, faults))


def refuse(
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> IncrementalAlterConfigsResponse:
    faults = [TopicRefused(error_code=error_code, message=message)] * len(request.resources)
    return IncrementalAlterConfigsResponse(responses=answers_of(request.resources, faults))


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

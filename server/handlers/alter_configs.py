"""AlterConfigs (key 33), v0-v2.

Behaviour: a resource's changes replace all that it overrides; see `server/config_alteration.py`.
"""

from __future__ import annotations

from protocol.error_codes import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from server.config_alteration import ResourceChange, alter_resources, answers_of
from server.config_changes import ConfigChange, Operation
from server.dispatch import RequestContext
from server.topic import TopicRefused


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the configuration of each resource on its own."""
    asked = [_resource_change(resource) for resource in request.resources]
    faults = await alter_resources(asked, context, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=answers_of(request.resources, faults))


def refuse(
    request: AlterConfigsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AlterConfigsResponse:
    faults = [TopicRefused(error_code=error_code, message=message)] * len(request.resources)
    return AlterConfigsResponse(responses=answers_of(request.resources, faults))


def _resource_change(resource: AlterConfigsResource) -> ResourceChange:
    return ResourceChange(
        type=resource.resource_type,
        name=resource.resource_name,
        changes=tuple(
            ConfigChange(name=config.name, operation=Operation.SET, value=config.value)
            for config in resource.configs
        ),
        replaces=True,
    )

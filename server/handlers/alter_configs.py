"""AlterConfigs (key 33), v0-v2.

Behaviour: a resource's changes replace all that it overrides; see `server/config_alteration.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.error_codes import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from server.config_alteration import Alteration, alter_resources, answer_of
from server.config_changes import ConfigChange, Operation
from server.dispatch import RequestContext
from server.topic import TopicRefused


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the configuration of each resource on its own."""
    alteration = Alteration(validate_only=request.validate_only, replaces=True)
    responses = await alter_resources(request.resources, _changes, alteration, context)
    return AlterConfigsResponse(responses=responses)


def refuse(
    request: AlterConfigsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AlterConfigsResponse:
    fault = TopicRefused(error_code=error_code, message=message)
    return AlterConfigsResponse(
        responses=tuple(answer_of(resource, fault) for resource in request.resources)
    )


def _changes(resource: AlterConfigsResource) -> Iterator[ConfigChange]:
    for each in resource.configs:
        yield ConfigChange(name=each.name, operation=Operation.SET, value=each.value)

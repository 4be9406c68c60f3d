"""AlterConfigs (key 33), v0-v2.

Behaviour: the properties in the request replace all overrides of a resource. For everything else see
`server/handlers/incremental_alter_configs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.config.changes import ConfigChange, Operation
from server.handlers.shared.config_alteration import Alteration, alter_resources, answer_of
from server.request_context import RequestContext
from server.topics.topic import TopicRefused


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the configuration of each resource independently."""
    alteration = Alteration(validate_only=request.validate_only, replaces=True)
    responses = await alter_resources(request.resources, _changes, alteration, context)
    return AlterConfigsResponse(responses=responses)


def refuse(
    request: AlterConfigsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AlterConfigsResponse:
    fault = TopicRefused(error_code=error_code, message=message)
    return AlterConfigsResponse(
        responses=lazy_array(lambda resource: answer_of(resource, fault), request.resources)
    )


def _changes(resource: AlterConfigsResource) -> Iterator[ConfigChange]:
    for each in resource.configs:
        yield ConfigChange(name=each.name, operation=Operation.SET, value=each.value)

"""IncrementalAlterConfigs (key 44), v0-v1.

Behaviour: as AlterConfigs, but what a request does not name stays as it is. A property is set, goes
back to its default, or, if it is a list, gets or loses elements; one that is not overridden yet gets
or loses them from the broker's default.

Source: KIP-339; Apache Kafka, ConfigurationControlManager.java.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.error_codes import ErrorCode
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from server.config_alteration import Alteration, alter_resources, answer_of
from server.config_changes import ConfigChange
from server.dispatch import RequestContext
from server.topic import TopicRefused


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the configuration of each resource on its own."""
    alteration = Alteration(validate_only=request.validate_only, replaces=False)
    responses = await alter_resources(request.resources, _changes, alteration, context)
    return IncrementalAlterConfigsResponse(responses=responses)


def refuse(
    request: IncrementalAlterConfigsRequest,
    context: RequestContext,
    error_code: ErrorCode,
    message: str,
) -> IncrementalAlterConfigsResponse:
    fault = TopicRefused(error_code=error_code, message=message)
    return IncrementalAlterConfigsResponse(
        responses=tuple(answer_of(resource, fault) for resource in request.resources)
    )


def _changes(resource: AlterConfigsResource) -> Iterator[ConfigChange]:
    for each in resource.configs:
        yield ConfigChange(name=each.name, operation=each.config_operation, value=each.value)

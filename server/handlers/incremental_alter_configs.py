"""IncrementalAlterConfigs (key 44), v0-v1.

Behaviour: like AlterConfigs, but properties that the request does not name stay unchanged. An operation
sets a property, resets it to its default, or adds or removes elements of a list; for a list without an
override, the elements are added to or removed from the broker's default.
`server/handlers/shared/config_alteration.py` checks the changes of a resource and passes them to their
owner: a topic's to `server/topics/topics.py` (`alter`), which stores them durably and then gives the new
configuration to each log of the topic (`storage/log/log.py`: `update_config`).
Source: KIP-339; Apache Kafka, ConfigurationControlManager.java.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.wire.error_codes import ErrorCode
from protocol.wire.lazy_array import lazy_array
from server.config.changes import ConfigChange
from server.handlers.shared.config_alteration import Alteration, alter_resources, answer_of
from server.request_context import RequestContext
from server.topics.topic import TopicRefused


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the configuration of each resource independently."""
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
        responses=lazy_array(lambda resource: answer_of(resource, fault), request.resources)
    )


def _changes(resource: AlterConfigsResource) -> Iterator[ConfigChange]:
    for each in resource.configs:
        yield ConfigChange(name=each.name, operation=each.config_operation, value=each.value)

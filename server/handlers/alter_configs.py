"""AlterConfigs (key 33), v0-v2, and what it shares with IncrementalAlterConfigs.

Behaviour: each resource's changes are made together or not at all. A topic's are durable, and its logs
follow them, when they are answered; here they replace all that it overrides. Broker properties
cannot change while the broker runs; that is said, and nothing is done.
Not implemented: broker loggers, client metrics, groups.

Source: Apache Kafka, ConfigAdminManager.scala, ControllerConfigurationValidator.scala.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from server.config_changes import ConfigChange, Operation, fault_of_changes, overrides_after
from server.dispatch import RequestContext
from server.handlers.describe_configs import ResourceType
from server.topic import TopicRefused
from server.topic_names import fault_of_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """What a request wants of one resource."""

    type: int
    name: str
    changes: tuple[ConfigChange, ...]
    replaces: bool
    """Whether whatever is not among the changes goes back to its default."""


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the configuration of each resource on its own."""
    asked = [_resource_change(resource) for resource in request.resources]
    faults = await alter_resources(asked, context, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=tuple(
            _answer(resource, fault)
            for resource, fault in zip(request.resources, faults, strict=True)
        )
    )


def refuse(
    request: AlterConfigsRequest, context: RequestContext, error_code: ErrorCode, message: str
) -> AlterConfigsResponse:
    fault = TopicRefused(error_code=error_code, message=message)
    return AlterConfigsResponse(responses=tuple(_answer(each, fault) for each in request.resources))


async def alter_resources(
    asked: Sequence[ResourceChange], context: RequestContext, *, validate_only: bool
) -> list[TopicRefused | None]:
    """Change the resources one by one; for each, in their order, why it was refused, if it was."""
    times = Counter((resource.type, resource.name) for resource in asked)
    return [
        await _alter(resource, context, validate_only=validate_only)
        if times[resource.type, resource.name] == 1
        else _refused("Each resource must appear at most once.")
        for resource in asked
    ]


async def _alter(
    asked: ResourceChange, context: RequestContext, *, validate_only: bool
) -> TopicRefused | None:
    fault = fault_of_changes(asked.changes)
    if fault is not None:
        return fault
    match asked.type:
        case ResourceType.TOPIC:
            return await _alter_topic(asked, context, validate_only=validate_only)
        case ResourceType.BROKER:
            return _refuse_broker(asked, context.broker.node.node_id)
        case _:
            return _refused(f"Unsupported resource type: {asked.type}")


async def _alter_topic(
    asked: ResourceChange, context: RequestContext, *, validate_only: bool
) -> TopicRefused | None:
    if not asked.name:
        return _refused("Default topic resources are not allowed.")
    fault = fault_of_name(asked.name)
    if fault is not None:
        return TopicRefused(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=fault)
    altered = await context.broker.topics.alter(
        asked.name,
        lambda before, defaults: overrides_after(
            {} if asked.replaces else before, asked.changes, defaults
        ),
        validate_only=validate_only,
    )
    return altered if isinstance(altered, TopicRefused) else None


def _refuse_broker(asked: ResourceChange, node_id: int) -> TopicRefused:
    if asked.name not in ("", str(node_id)):
        return _refused(f"Unexpected broker id, expected {node_id}, but received {asked.name}")
    names = ", ".join(change.name for change in asked.changes)
    return _refused(
        f"Cannot update these configs dynamically: {names}. Broker properties are read at the"
        " start; change server.properties and restart."
    )


def _refused(message: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=message)


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


def _answer(
    resource: AlterConfigsResource, fault: TopicRefused | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if fault is None else fault.error_code,
        error_message=None if fault is None else fault.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )

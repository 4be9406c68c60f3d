"""What AlterConfigs and IncrementalAlterConfigs share: changes of resources, one by one, and answers.

Each resource's changes are made together or not at all. A topic's are durable, and its logs follow
them, when they are answered; so are those of a broker's dynamic properties.
The levels of loggers hold until the next start.
Not implemented: client metrics, groups.

Source: Apache Kafka, ConfigAdminManager.scala, ControllerConfigurationValidator.scala.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.error_codes import ErrorCode
from protocol.messages.alter_configs import AlterConfigsResourceResponse
from server.broker_loggers import fault_of_levels, set_levels
from server.config_changes import ConfigChange, fault_of_changes, overrides_after
from server.config_rows import ResourceType
from server.dispatch import RequestContext
from server.topic import TopicRefused
from server.topic_names import fault_of_name


class AskedResource(Protocol):
    """The part of a request's resource that its answer repeats."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """What a request wants of one resource."""

    type: int
    name: str
    changes: tuple[ConfigChange, ...]
    replaces: bool
    """Whether whatever is not among the changes goes back to its default."""


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


def answers_of(
    asked: Iterable[AskedResource], faults: Iterable[TopicRefused | None]
) -> tuple[AlterConfigsResourceResponse, ...]:
    """What each resource's client is told."""
    return tuple(
        AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE if fault is None else fault.error_code,
            error_message=None if fault is None else fault.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, fault in zip(asked, faults, strict=True)
    )


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
            return await context.broker.configs.alter(
                asked.name, asked.changes, replaces=asked.replaces, validate_only=validate_only
            )
        case ResourceType.BROKER_LOGGER if not asked.replaces:
            return _alter_loggers(asked, context, validate_only=validate_only)
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


def _alter_loggers(
    asked: ResourceChange, context: RequestContext, *, validate_only: bool
) -> TopicRefused | None:
    node_id = context.broker.node.node_id
    if asked.name != str(node_id):
        return _refused(f"Unexpected node id. Expected {node_id}, but received {asked.name}")
    fault = fault_of_levels(asked.changes)
    if fault is None and not validate_only:
        set_levels(asked.changes)
    return fault


def _refused(message: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=message)

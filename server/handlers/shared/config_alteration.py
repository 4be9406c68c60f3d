"""Changes the settings of resources, for AlterConfigs and IncrementalAlterConfigs.

This module checks what the client may change, and which properties the resource has. Their owner checks
the values: for a topic `LogConfig.from_overrides`, which `Topics.alter` calls before it stores anything.
The changes of one resource are applied together or not at all. When the answer is sent, the changes of a
topic are durable and its logs follow them (`server/topics/topics.py`: `alter`), and the changes of a
broker's dynamic properties are durable and in effect (`server/config/broker_configs.py`). Log levels
last until the next start.
Not implemented: client metrics.

Source: Apache Kafka, ConfigAdminManager.scala, ControllerConfigurationValidator.scala.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from protocol.messages.alter_configs import AlterConfigsResourceResponse
from protocol.wire.error_codes import ErrorCode
from server.config.broker_loggers import fault_of_levels, set_levels
from server.config.changes import ConfigChange, Examined, examined
from server.config.config import BrokerConfig, known_properties
from server.config.group_config import GROUP_PROPERTIES
from server.config.listeners.overrides import override_declared
from server.config.rows import ResourceType
from server.config.topic_changes import known_properties_of, topic_change
from server.handlers.shared.config_permissions import config_refusal
from server.handlers.shared.unkeyed_topic import refusal_of_unkeyed_topic
from server.request_context import RequestContext
from server.security.acls import Operation
from server.standby.fenced_apis import OF_CONTROLLERS
from server.topics.names import fault_of_name
from server.topics.topic import TopicRefused
from storage.formats.log_config import LogConfig


class AskedResource(Protocol):
    """The fields of a requested resource that the answer repeats."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=AskedResource)

NAME_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """The mode of a request."""

    validate_only: bool
    replaces: bool
    """Whether settings that a resource's changes do not name return to their defaults."""


async def alter_resources(
    asked: Sequence[R],
    changes_of: Callable[[R], Iterable[ConfigChange]],
    alteration: Alteration,
    context: RequestContext,
) -> tuple[AlterConfigsResourceResponse, ...]:
    """Change the resources one by one, and return their answers in the same order.

    A resource that occurs twice is refused both times and not changed.
    """
    times: Counter[tuple[int, str]] = Counter()
    async for resource in context.pace.paced(asked):
        times[resource.resource_type, resource.resource_name] += 1
    answers = []
    async for resource in context.pace.paced(asked):
        if times[resource.resource_type, resource.resource_name] > 1:
            fault: TopicRefused | None = TWICE
        else:
            fault = await _alter(resource, changes_of(resource), alteration, context)
        answers.append(answer_of(resource, fault))
    return tuple(answers)


def answer_of(resource: AskedResource, fault: TopicRefused | None) -> AlterConfigsResourceResponse:
    """Returns the answer for a resource."""
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if fault is None else fault.error_code,
        error_message=None if fault is None else fault.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def _alter(
    resource: AskedResource,
    changes: Iterable[ConfigChange],
    alteration: Alteration,
    context: RequestContext,
) -> TopicRefused | None:
    refusal = config_refusal(
        Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name, context
    )
    if refusal is not None:
        return refusal
    if (fence := context.broker.fence) is not None and not _is_this_broker(resource, context):
        return TopicRefused(error_code=OF_CONTROLLERS, message=fence.reason)
    alter = ALTER.get(resource.resource_type)
    known = _known_properties(resource, context)
    found = await examined(changes, known, context.pace)
    if isinstance(found, TopicRefused):
        return found
    if alter is None or (alteration.replaces and alter is _alter_loggers):
        return _refused(f"Unsupported resource type: {resource.resource_type}")
    return await alter(resource.resource_name, found, alteration, context)


def _is_this_broker(resource: AskedResource, context: RequestContext) -> bool:
    """Returns whether a resource is what a fenced broker lets clients change: its own properties."""
    is_broker = resource.resource_type == ResourceType.BROKER
    return is_broker and resource.resource_name == str(context.broker.node.node_id)


def _known_properties(resource: AskedResource, context: RequestContext) -> Container[str] | None:
    """Returns the property names of a resource, including names that a later release has set on it.

    None for a resource type without known properties.
    """
    match resource.resource_type:
        case ResourceType.TOPIC:
            return known_properties_of(context.broker.topics.get(resource.resource_name))
        case ResourceType.BROKER:
            given = context.broker.configs.names_set(resource.resource_name)
            return _BrokerNames(given)
        case ResourceType.GROUP:
            return GROUP_PROPERTIES
        case _:
            return None


class _BrokerNames:
    """The names that a change of the broker may have: properties, and those of one listener."""

    __slots__ = ("_given",)

    def __init__(self, given: Container[str]) -> None:
        self._given = given

    def __contains__(self, name: object) -> bool:
        if name in _broker_properties() or name in self._given:
            return True
        return isinstance(name, str) and override_declared(BrokerConfig, name) is not None


@functools.cache
def _broker_properties() -> frozenset[str]:
    return frozenset(known_properties())


async def _alter_topic(
    name: str, found: Examined, alteration: Alteration, context: RequestContext
) -> TopicRefused | None:
    if not name:
        return _refused("Default topic resources are not allowed.")
    fault = fault_of_name(name)
    if fault is not None:
        return TopicRefused(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=fault)
    view = context.broker.readable_topics.refusal(name)
    if view is not None:
        return view

    change = topic_change(name, found, replaces=alteration.replaces)

    def after(before: Mapping[str, str], defaults: LogConfig) -> Mapping[str, str] | TopicRefused:
        changed = change(before, defaults)
        if isinstance(changed, TopicRefused):
            return changed
        return refusal_of_unkeyed_topic(name, before, changed, context) or changed

    altered = await context.broker.topics.alter(name, after, validate_only=alteration.validate_only)
    return altered if isinstance(altered, TopicRefused) else None


async def _alter_broker(
    name: str, found: Examined, alteration: Alteration, context: RequestContext
) -> TopicRefused | None:
    """Change the settings of one broker or of all. Ignores unused properties, as in a file."""
    fault = await context.broker.configs.alter(
        name,
        found.changes,
        replaces=alteration.replaces,
        validate_only=alteration.validate_only,
    )
    if fault is None and found.unknown:
        names = ", ".join(map(_shortened, found.unknown))
        context.broker.warnings.say(
            context.connection, f"ignored properties that this broker does not use: {names}"
        )
    return fault


async def _alter_group(
    name: str, found: Examined, alteration: Alteration, context: RequestContext
) -> TopicRefused | None:
    if not name:
        return _refused("Default group resources are not allowed.")
    if found.unknown:
        text = f"Unknown group config name: {found.unknown[0]}"
        return TopicRefused(error_code=ErrorCode.INVALID_CONFIG, message=text)
    return await context.broker.group_overrides.alter(
        name,
        found.changes,
        replaces=alteration.replaces,
        validate_only=alteration.validate_only,
    )


async def _alter_loggers(
    name: str, found: Examined, alteration: Alteration, context: RequestContext
) -> TopicRefused | None:
    node_id = context.broker.node.node_id
    if name != str(node_id):
        return _refused(f"Unexpected node id. Expected {node_id}, but received {name}")
    fault = fault_of_levels(found.changes)
    if fault is None and not alteration.validate_only:
        set_levels(found.changes)
    return fault


ALTER: Mapping[int, Callable[..., Awaitable[TopicRefused | None]]] = {
    ResourceType.TOPIC: _alter_topic,
    ResourceType.BROKER: _alter_broker,
    ResourceType.BROKER_LOGGER: _alter_loggers,
    ResourceType.GROUP: _alter_group,
}


def _shortened(name: str) -> str:
    """Returns a name for the log: cut to NAME_SHOWN_MAX, with control characters escaped."""
    name = name[:NAME_SHOWN_MAX]
    return name if name.isprintable() else ascii(name)


def _refused(message: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=message)


TWICE = _refused("Each resource must appear at most once.")

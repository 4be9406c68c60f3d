"""Changes to the configuration of a topic or broker, as in AlterConfigs and IncrementalAlterConfigs.

The overrides of a resource are a map from property to text. The changes of one request are applied all
together, or not at all if one is wrong. This module only computes the new map: a topic's is made durable
and given to its logs by `server/topics/topics.py` (`alter`), the broker's by `broker_configs.py` beside
it.

Source: Apache Kafka, ConfigAdminManager.scala, ConfigurationControlManager.java.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.wire.error_codes import ErrorCode
from server.runtime.turns import Pace
from server.topics.topic import TopicRefused
from storage.formats.config_property import LIST, ConfigError, ConfigProperty, Value


class Defaults(Protocol):
    """A configuration that gives the values of properties that are not overridden."""

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]: ...


class Operation(enum.IntEnum):
    """How a change alters a property. On the wire: values never change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS = frozenset(operation.value for operation in Operation)
NAMES_SHOWN_MAX = 10
"""The most wrong names that an error message lists; a request may have 100,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One change, as a client sent it."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The changes of one resource, after the checks of `examined`."""

    changes: tuple[ConfigChange, ...]
    """The changes to known properties."""
    unknown: tuple[str, ...]
    """The first `NAMES_SHOWN_MAX` unknown names that the request sets a value for."""


async def examined(
    changes: Iterable[ConfigChange], known: Container[str] | None, pace: Pace
) -> Examined | TopicRefused:
    """Check the changes of one resource. Returns those that are valid, or a refusal in Kafka's words.

    Args:
        known: the names of its properties; None: any name is valid.
    """
    names: set[str] = set()
    kept: list[ConfigChange] = []
    unknown, twice, nulls, operations = list[str](), list[str](), list[str](), list[str]()
    async for change in pace.paced(changes):
        if change.name in names:
            _note(twice, change.name)
            continue
        names.add(change.name)
        if change.operation not in OPERATIONS:
            _note(operations, f"{change.operation} for {change.name}")
        elif change.value is None and change.operation != Operation.DELETE:
            _note(nulls, change.name)
        elif known is None or change.name in known:
            kept.append(change)
        elif change.operation != Operation.DELETE:
            # As in Kafka, deleting an unknown property is no error.
            _note(unknown, change.name)
    if twice:
        return _refused(f"Error due to duplicate config keys: {', '.join(twice)}")
    if operations:
        return _refused(f"Unknown operations type {operations[0]}")
    if nulls:
        return _refused(f"Null value not supported for : {', '.join(nulls)}")
    return Examined(changes=tuple(kept), unknown=tuple(unknown))


def _note(names: list[str], name: str) -> None:
    """Add a name to those that a message lists, up to `NAMES_SHOWN_MAX`."""
    if len(names) < NAMES_SHOWN_MAX and name not in names:
        names.append(name)


def overrides_after(
    overrides: Mapping[str, str],
    changes: Sequence[ConfigChange],
    defaults: Defaults,
) -> dict[str, str]:
    """Returns the overrides after the changes; does not check the new values.

    Args:
        changes: those of an `Examined`.
        defaults: gives the elements of lists that are not overridden yet.

    Raises:
        ConfigError: a change appends to, or subtracts from, a property that is not a list.
    """
    after = dict(overrides)
    for change in changes:
        if change.operation == Operation.DELETE:
            after.pop(change.name, None)
        elif change.operation == Operation.SET:
            after[change.name] = change.value or ""
        else:
            after[change.name] = _list_after(after, change, defaults)
    return after


def _list_after(overrides: Mapping[str, str], change: ConfigChange, defaults: Defaults) -> str:
    """Returns the text of a list after the change's elements are appended or subtracted."""
    found = next((row for row in defaults.rows() if row[0].name == change.name), None)
    if found is None:
        raise ConfigError(f"Unknown topic config name: {change.name}")
    declared, default = found
    if declared.type is not LIST:
        verb = Operation(change.operation).name
        raise ConfigError(f"Can't {verb} to key {change.name} because its type is not LIST.")
    before = overrides.get(change.name, declared.format(default) or "")
    elements, given = _split(before), _split(change.value or "")
    if change.operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*elements, *given]))
    return ",".join(each for each in elements if each not in given)


def _split(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def _refused(message: str) -> TopicRefused:
    return TopicRefused(error_code=ErrorCode.INVALID_REQUEST, message=message)

"""Changes of a topic's or a broker's configuration, as AlterConfigs and its incremental form ask.

What it overrides is a map from property to text. The changes of one request make a new map from
it, all of them or, where one is wrong, none. `Topics.alter` and `BrokerConfigs.alter` make it durable.

Source: Apache Kafka, ConfigAdminManager.scala, ConfigurationControlManager.java.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.error_codes import ErrorCode
from server.topic import TopicRefused
from server.turns import Pace
from storage.config_property import LIST, ConfigError, ConfigProperty, Value


class Defaults(Protocol):
    """A configuration: what holds where nothing is overridden."""

    def rows(self) -> Iterable[tuple[ConfigProperty, Value]]: ...


class Operation(enum.IntEnum):
    """What becomes of a property. On the wire: values never change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS = frozenset(operation.value for operation in Operation)
NAMES_SHOWN_MAX = 10
"""A message lists the first wrong names, not 100,000 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One change, as a client sent it."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """Changes of one resource that do not contradict each other."""

    changes: tuple[ConfigChange, ...]
    """Those of properties that are known."""
    unknown: tuple[str, ...]
    """The first names that shall have a value and that nobody knows."""


async def examined(
    changes: Iterable[ConfigChange], known: Container[str] | None, pace: Pace
) -> Examined | TopicRefused:
    """Look at the changes of one resource; messages as Kafka's.

    Args:
        known: the names of its properties; None takes any for one.
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
            # As in Kafka, also what nobody knows may be deleted.
            _note(unknown, change.name)
    if twice:
        return _refused(f"Error due to duplicate config keys: {', '.join(twice)}")
    if operations:
        return _refused(f"Unknown operations type {operations[0]}")
    if nulls:
        return _refused(f"Null value not supported for : {', '.join(nulls)}")
    return Examined(changes=tuple(kept), unknown=tuple(unknown))


def _note(names: list[str], name: str) -> None:
    """Add a name to those that a message lists, unless it has enough of them."""
    if len(names) < NAMES_SHOWN_MAX and name not in names:
        names.append(name)


def overrides_after(
    overrides: Mapping[str, str],
    changes: Sequence[ConfigChange],
    defaults: Defaults,
) -> dict[str, str]:
    """What is overridden once it is changed; whether that is sound is for `defaults`' class to say.

    Args:
        changes: without a fault of their own.
        defaults: what a list that is not overridden yet is extended from.

    Raises:
        ConfigError: something is appended to or subtracted from what is not a list.
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
    """A list's elements with those of the change, or without."""
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

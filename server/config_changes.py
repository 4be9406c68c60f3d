"""Changes of a topic's or a broker's configuration, as AlterConfigs and its incremental form ask.

What it overrides is a map from property to text. The changes of one request make a new map from
it, all of them or, where one is wrong, none. Pure; `Topics.alter` and `BrokerConfigs.alter`
make it durable.

Source: Apache Kafka, ConfigAdminManager.scala, ConfigurationControlManager.java.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.error_codes import ErrorCode
from server.config import BrokerConfig
from server.topic import TopicRefused
from storage.config_property import LIST, ConfigError
from storage.log_config import LogConfig


class Operation(enum.IntEnum):
    """What becomes of a property. On the wire: values never change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One change, as a client sent it."""

    name: str
    operation: int
    value: str | None


def fault_of_changes(changes: Sequence[ConfigChange]) -> TopicRefused | None:
    """What is wrong with the changes of one resource, whatever it is; messages as Kafka's."""
    times = Counter(change.name for change in changes)
    twice = [name for name, count in times.items() if count > 1]
    if twice:
        return _refused(f"Error due to duplicate config keys: {', '.join(twice)}")
    known = [operation.value for operation in Operation]
    unknown = [each for each in changes if each.operation not in known]
    if unknown:
        return _refused(f"Unknown operations type {unknown[0].operation} for {unknown[0].name}")
    nulls = [c.name for c in changes if c.value is None and c.operation != Operation.DELETE]
    if nulls:
        return _refused(f"Null value not supported for : {', '.join(nulls)}")
    return None


def overrides_after(
    overrides: Mapping[str, str],
    changes: Sequence[ConfigChange],
    defaults: LogConfig | BrokerConfig,
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
            # As in Kafka, also of a name that nobody knows.
            after.pop(change.name, None)
        elif change.operation == Operation.SET:
            after[change.name] = change.value or ""
        else:
            after[change.name] = _list_after(after, change, defaults)
    return after


def _list_after(
    overrides: Mapping[str, str], change: ConfigChange, defaults: LogConfig | BrokerConfig
) -> str:
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

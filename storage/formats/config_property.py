"""Declares a configuration property once; everything else derives from the declaration.

A configuration is a frozen dataclass whose fields are made by `prop`:

    segment_bytes: int = prop(
        "segment.bytes", INT, default=1 << 30, at_least=1 << 20, unit="bytes", doc="..."
    )

The declaration gives the parsing and validation of text (`ConfigProperty.parse`), the text form of a
value (`ConfigProperty.format`), the name of the environment variable, DescribeConfigs rows and the
documentation. Bounds apply to text that an operator or a client wrote; code that constructs a
configuration directly is trusted.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Value = bool | int | float | str | tuple[str, ...] | None
"""A parsed property; None only if the property is optional and was not set."""

INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", re.ASCII)


class ConfigError(Exception):
    """A property's value is wrong. Each line names a property, the value and what would be right.

    The whole configuration that contained it is rejected. A check of several values gives a line for
    each wrong one.
    """

    @classmethod
    def of_all(cls, problems: Sequence[str]) -> ConfigError:
        """Returns one error for several problems."""
        return cls("\n".join(problems))

    @property
    def problems(self) -> list[str]:
        """A line for each wrong value."""
        return str(self).splitlines()


class PropertyType(enum.IntEnum):
    """A property's type. The values are on the wire (DescribeConfigs) and never change."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
LONG = PropertyType.LONG
DOUBLE = PropertyType.DOUBLE
LIST = PropertyType.LIST
PASSWORD = PropertyType.PASSWORD


class ByListener(enum.Enum):
    """Whether `listener.name.<name>.<property>` sets a property for one listener (KIP-103)."""

    NO = enum.auto()
    AT_START = enum.auto()
    """Such a text is read when the broker starts."""
    WHILE_RUNNING = enum.auto()
    """Clients may also set such a text while the broker runs, but not the property itself."""


TYPE_BOUNDS: Mapping[PropertyType, tuple[int, int]] = {
    INT: (-INT_MAX - 1, INT_MAX),
    LONG: (-LONG_MAX - 1, LONG_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A broker-wide property that gives a topic property its default."""

    name: str
    scale: int = 1
    """One of its units in units of the topic property: 3 600 000 for hours if that is in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProperty:
    """One declared property."""

    name: str
    """Kafka's name, such as `segment.bytes`."""
    type: PropertyType
    default: Value
    at_least: float | None
    at_most: float | None
    choices: tuple[str, ...]
    """The only texts allowed, of a list its elements; empty allows any."""
    unit: str
    dynamic: bool
    """Whether it may change while the broker runs."""
    internal: bool
    """Whether it is accepted, but neither documented nor listed (Kafka's `internal.` properties)."""
    synonyms: tuple[Synonym, ...]
    """The broker-wide properties that it falls back to, the strongest first."""
    doc: str
    by_listener: ByListener = ByListener.NO
    of_one_broker: bool = False
    """Whether it may be set, while the broker runs, for one broker only and not for all."""

    @property
    def is_sensitive(self) -> bool:
        return self.type is PASSWORD

    def parse(self, text: str) -> Value:
        """Returns the value of `text`.

        Raises:
            ConfigError: it is not of the property's type, out of range or not a choice.
        """
        value = self._typed(text.strip())
        if isinstance(value, tuple) and self.choices:
            # As in Kafka, a choice that is listed twice counts once (KIP-1161).
            value = tuple(dict.fromkeys(value))
        self._check_range(value)
        self._check_choices(value)
        return value

    def format(self, value: Value) -> str | None:
        """Returns the text that `parse` reads as `value`, in Kafka's (that is Java's) spelling."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case float():
                return _as_java_writes(value)
            case tuple():
                return ",".join(value)
            case _:
                return str(value)

    def _typed(self, text: str) -> Value:
        match self.type:
            case PropertyType.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise self._error(text, "Expected value to be either true or false")
                return text.lower() == "true"
            case PropertyType.INT | PropertyType.LONG:
                return self._whole_number(text)
            case PropertyType.DOUBLE:
                if not DECIMAL.fullmatch(text) or math.isinf(float(text.rstrip("dDfF"))):
                    raise self._error(text, f"Not a number of type {self.type.name}")
                return float(text.rstrip("dDfF"))
            case PropertyType.LIST:
                return tuple(re.split(r"\s*,\s*", text)) if text else ()
            case PropertyType.STRING | PropertyType.PASSWORD:
                return text

    def _whole_number(self, text: str) -> int:
        least, most = TYPE_BOUNDS[self.type]
        # The length is checked first: Python refuses to convert absurdly long digit strings.
        is_number = INTEGER.fullmatch(text) and len(text) <= 25
        if not is_number or not least <= int(text) <= most:
            raise self._error(text, f"Not a number of type {self.type.name}")
        return int(text)

    def _check_range(self, value: Value) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if self.at_least is not None and value < self.at_least:
            least = f"Value must be at least {_number(self.at_least)}"
            raise self._error(self.format(value), least)
        if self.at_most is not None and value > self.at_most:
            most = f"Value must be no more than {_number(self.at_most)}"
            raise self._error(self.format(value), most)

    def _check_choices(self, value: Value) -> None:
        if isinstance(value, tuple) and len(set(value)) != len(value):
            raise self._error(self.format(value), "it lists something twice")
        given = value if isinstance(value, tuple) else (self.format(value),)
        for each in given if self.choices else ():
            if each not in self.choices:
                allowed = f"String must be one of: {', '.join(self.choices)}"
                raise self._error(each, allowed)

    def _error(self, text: str | None, wrong: str) -> ConfigError:
        shown = "<hidden>" if self.is_sensitive else _shown(text)
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {wrong}")


def prop(
    name: str,
    type_: PropertyType,
    *,
    default: Value,
    doc: str,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    unit: str = "",
    dynamic: bool = True,
    internal: bool = False,
    synonyms: tuple[Synonym, ...] = (),
    by_listener: ByListener = ByListener.NO,
    of_one_broker: bool = False,
) -> Any:
    """Declare a dataclass field that is a configuration property; its annotation gives the type."""
    declared = ConfigProperty(
        name=name,
        type=type_,
        default=default,
        at_least=at_least,
        at_most=at_most,
        choices=choices,
        unit=unit,
        dynamic=dynamic,
        internal=internal,
        synonyms=synonyms,
        doc=doc,
        by_listener=by_listener,
        of_one_broker=of_one_broker,
    )
    # A password does not show in the text of a configuration.
    is_shown = type_ is not PropertyType.PASSWORD
    return dataclasses.field(default=default, repr=is_shown, metadata={"property": declared})


_PROPERTIES: dict[type[Any], Mapping[str, ConfigProperty]] = {}
_FIELDS: dict[type[Any], Mapping[str, str]] = {}
"""What configuration classes declare. Each class is looked at once."""


def properties_of(config: type[Any]) -> Mapping[str, ConfigProperty]:
    """Returns the properties that a configuration class declares, by field name."""
    if config not in _PROPERTIES:
        _PROPERTIES[config] = {
            field.name: field.metadata["property"]
            for field in dataclasses.fields(config)
            if "property" in field.metadata
        }
    return _PROPERTIES[config]


def fields_by_property(config: type[Any]) -> Mapping[str, str]:
    """Returns the fields of a configuration class, by property name."""
    if config not in _FIELDS:
        _FIELDS[config] = {declared.name: name for name, declared in properties_of(config).items()}
    return _FIELDS[config]


def problems_in(declared: Mapping[str, ConfigProperty], texts: Mapping[str, str]) -> list[str]:
    """Returns a message for each declared property in `texts` (by property name) that is wrong."""
    problems = []
    for name, text in texts.items():
        try:
            if name in declared:
                declared[name].parse(text)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def parse_fields(config: type[Any], texts: Mapping[str, str]) -> dict[str, Value]:
    """Returns the values of `texts` (by property name), by field name.

    Raises:
        ConfigError: a value is wrong, or there is no property with that name.
    """
    fields, declared = fields_by_property(config), properties_of(config)
    values: dict[str, Value] = {}
    for name, text in texts.items():
        if name not in fields:
            raise ConfigError(f"{name}: there is no such property")
        values[fields[name]] = declared[fields[name]].parse(text)
    return values


def _as_java_writes(value: float) -> str:
    """Format like Double.toString: 5.0E7 from ten million on and below a thousandth."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    number = Decimal(repr(value)).normalize()
    sign, digits, _ = number.as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{rest}E{number.adjusted()}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _shown(text: str | None) -> str:
    """Returns a value as an error shows it: on one line, and not too long."""
    if not text:
        return "an empty value"
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 100 else text[:100] + "..."

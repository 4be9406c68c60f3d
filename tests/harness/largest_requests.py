"""The largest legal requests of an API, made from its declaration: each of its arrays filled in turn.

Filled with what is all the same, and with what differs in every element: an answer that is computed
once for each distinct thing helps against the first only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from protocol.api_keys import Api
from protocol.primitives import ELEMENTS_MAX, ZERO_UUID
from protocol.schema import UUID, Kind, Message, NamedField, WireType, fields_of

Path = tuple[str, ...]
"""The names of fields from the top of a message down to an array."""

RESOURCES: tuple[Mapping[str, Any], ...] = tuple(
    {"resource_type": type_, "resource_name": name}
    for type_, name in ((2, "orders"), (4, "1"), (32, "group"))
)
"""What configurations are of: in a request about configurations each is tried."""
CONFIGURATIONS = {"configs", "configuration_keys"}
USUAL: Mapping[str, Any] = {"resource_types": RESOURCES[0]["resource_type"]}
"""What is in fields of these names anyhow."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Which array of a message is filled, and with what."""

    path: Path
    is_distinct: bool
    values: Mapping[str, Any]
    """What is in fields of these names, unless they have to differ."""

    def __str__(self) -> str:
        kind = "distinct" if self.is_distinct else "same"
        values = "-".join(str(value) for value in self.values.values())
        return "_".join([*self.path, kind, *([values] if values else [])])


def fillings(api: Api) -> Iterator[Filling]:
    """Every way of making a request of an API as large as it may be."""
    declared, version = api.request_type, api.version_max
    names = set(_names(declared))
    for path in _array_paths(declared, version):
        for values in RESOURCES if names & CONFIGURATIONS else ({},):
            for is_distinct in (False, True):
                yield Filling(path=path, is_distinct=is_distinct, values=values)


def filled(api: Api, filling: Filling) -> Message:
    """The request; it has nearly as many elements as are allowed."""
    filler = _Filler(api.version_max, filling)
    request: Message = filler.message(api.request_type, filling.path, 0)
    return request


class _Filler:
    def __init__(self, version: int, filling: Filling) -> None:
        self._version = version
        self._filling = filling

    def message(self, declared: type[Any], path: Path, index: int) -> Any:
        values = {
            field.name: self._value(field, field.wire.type, path, index)
            for field in fields_of(declared)
            if field.wire.exists_in(self._version)
        }
        return declared(**values)

    def _value(self, field: NamedField, wire_type: WireType[Any], path: Path, index: int) -> Any:
        if wire_type.kind is Kind.ARRAY:
            assert wire_type.element is not None
            below = path[1:] if path[:1] == (field.name,) else None
            return self._array(field, wire_type.element, below, index)
        if wire_type.kind is Kind.STRUCT:
            assert wire_type.struct is not None
            return self.message(wire_type.struct, (), index)
        return self._plain(field.name, wire_type, index)

    def _array(
        self, field: NamedField, element: WireType[Any], below: Path | None, index: int
    ) -> tuple[Any, ...]:
        if below != ():
            return (self._element(field, element, below or (), index),)
        count = (ELEMENTS_MAX - 100) // _size(element, self._version)
        if not self._filling.is_distinct:
            return (self._element(field, element, (), 0),) * count
        return tuple(self._element(field, element, (), number) for number in range(count))

    def _element(self, field: NamedField, element: WireType[Any], path: Path, index: int) -> Any:
        if element.kind is Kind.STRUCT:
            assert element.struct is not None
            return self.message(element.struct, path, index)
        return self._plain(field.name, element, index)

    def _plain(self, name: str, wire_type: WireType[Any], index: int) -> Any:
        is_distinct = self._filling.is_distinct and index > 0
        if name in self._filling.values and not (is_distinct and wire_type.kind is Kind.STRING):
            return self._filling.values[name]
        if name in USUAL and not is_distinct:
            return USUAL[name]
        if wire_type.kind is Kind.STRING:
            return f"orders-{index}" if is_distinct else "orders"
        if wire_type.kind is Kind.BYTES:
            return b""
        if wire_type is UUID:
            return ZERO_UUID
        return index % 127 if wire_type.name == "int8" else index % 32_767


def _size(element: WireType[Any], version: int) -> int:
    """How many elements one element is, with those of the arrays in it."""
    if element.kind is Kind.ARRAY:
        assert element.element is not None
        return _size(element.element, version)
    if element.kind is not Kind.STRUCT:
        return 1
    assert element.struct is not None
    nested = (
        field.wire.type
        for field in fields_of(element.struct)
        if field.wire.exists_in(version) and field.wire.type.kind is Kind.ARRAY
    )
    return 1 + sum(_size(each, version) for each in nested)


def _array_paths(declared: type, version: int) -> Iterator[Path]:
    for field in fields_of(declared):
        if not field.wire.exists_in(version) or field.wire.type.kind is not Kind.ARRAY:
            continue
        yield (field.name,)
        element = field.wire.type.element
        if element is not None and element.struct is not None:
            yield from ((field.name, *path) for path in _array_paths(element.struct, version))


def _names(declared: type) -> Iterator[str]:
    for field in fields_of(declared):
        yield field.name
        wire_type = field.wire.type
        while wire_type.element is not None:
            wire_type = wire_type.element
        if wire_type.struct is not None:
            yield from _names(wire_type.struct)

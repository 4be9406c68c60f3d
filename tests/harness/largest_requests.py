"""The largest legal requests of an API, made from its declaration.

For each array that a request has, at any depth, one request fills that array with as many elements as
may be decoded: once with the same element again and again, once with as many different ones.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from typing import Any

from protocol.primitives import ELEMENTS_MAX, ZERO_UUID
from protocol.schema import FLOAT64, UUID, Kind, Message, NamedField, WireType, fields_of

COUNT = ELEMENTS_MAX - 1_000
"""Elements are counted over all arrays of a request."""

NAME = "orders"
"""Every string: a topic of this name makes the requests find something."""

SIZES = {"max_bytes": 1 << 20, "partition_max_bytes": 1 << 20}

ArrayPath = tuple[str, ...]
"""The names of fields from a request to one of its arrays."""


def largest_requests(
    request_type: type[Message], version: int
) -> Iterator[tuple[str, ArrayPath, bool]]:
    """What `largest_request` takes for each request, with a name for it."""
    for path in _array_paths(request_type, version):
        for differ in (False, True):
            yield f"{'.'.join(path)}-{'different' if differ else 'same'}", path, differ


def largest_request(
    request_type: type[Message], version: int, path: ArrayPath, *, differ: bool
) -> Message:
    """A request whose array at `path` is as long as may be."""
    request: Message = _struct(request_type, version, path, differ=differ)
    return request


def _array_paths(declared: type, version: int) -> Iterator[ArrayPath]:
    for field in _fields(declared, version):
        element = field.wire.type.element
        if element is not None:
            yield (field.name,)
            if element.struct is not None:
                for path in _array_paths(element.struct, version):
                    yield (field.name, *path)


def _fields(declared: type, version: int) -> list[NamedField]:
    return [field for field in fields_of(declared) if field.wire.exists_in(version)]


def _struct(declared: type, version: int, path: ArrayPath, *, differ: bool) -> Any:
    return declared(
        **{
            field.name: _long_array(field, version, path[1:], differ=differ)
            if path[:1] == (field.name,)
            else _value(field.name, field.wire.type, version)
            for field in _fields(declared, version)
            if path[:1] == (field.name,) or field.default is dataclasses.MISSING
        }
    )


def _long_array(
    field: NamedField, version: int, rest: ArrayPath, *, differ: bool
) -> tuple[Any, ...]:
    wire_type = field.wire.type.element
    assert wire_type is not None
    if rest:
        assert wire_type.struct is not None
        return (_struct(wire_type.struct, version, rest, differ=differ),)
    element = _value(field.name, wire_type, version)
    count = COUNT // _elements_in(element)
    if not differ:
        return (element,) * count
    # In no order that makes them easy to sort.
    return tuple(_other(element, wire_type, version, i * 7919 % count) for i in range(count))


def _elements_in(value: Any) -> int:
    """How many elements of arrays there are in one, itself included."""
    if not dataclasses.is_dataclass(value):
        return 1
    arrays = [getattr(value, field.name) for field in fields_of(type(value))]
    return 1 + sum(
        _elements_in(item) for array in arrays if isinstance(array, tuple) for item in array
    )


def _value(name: str, wire_type: WireType[Any], version: int) -> Any:
    match wire_type.kind:
        case Kind.STRING:
            return NAME
        case Kind.BYTES:
            return memoryview(b"")
        case Kind.ARRAY:
            assert wire_type.element is not None
            return (_value(name, wire_type.element, version),)
        case Kind.STRUCT:
            assert wire_type.struct is not None
            return _struct(wire_type.struct, version, (), differ=False)
        case Kind.FIXED if wire_type is UUID:
            return ZERO_UUID
        case Kind.FIXED if wire_type is FLOAT64:
            return 0.0
        case Kind.FIXED:
            return SIZES.get(name, 0)


def _other(element: Any, wire_type: WireType[Any], version: int, index: int) -> Any:
    """An element that differs from all others: by its name, else by its id, else by its number."""
    if wire_type.struct is None:
        return _distinct(wire_type, index)
    fields = _fields(wire_type.struct, version)
    texts = [field for field in fields if field.wire.type.kind is Kind.STRING]
    ids = [field for field in fields if field.wire.type is UUID]
    numbers = [field for field in fields if field.wire.type.kind is Kind.FIXED]
    for field in (texts or ids or numbers)[:1]:
        value = _distinct(field.wire.type, index)
        return dataclasses.replace(element, **{field.name: value})
    return element


def _distinct(wire_type: WireType[Any], index: int) -> Any:
    if wire_type.kind is Kind.STRING:
        return f"t{index}"
    if wire_type is UUID:
        return uuid.UUID(int=index + 1)
    return index if wire_type.format in "iq" else index % 128

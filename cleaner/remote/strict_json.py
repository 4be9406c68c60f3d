"""Strict JSON for frozen values: no field may be missing, unknown or of another type.

The JSON comes from another process, maybe of another release: bad input is refused completely, with a
sentence that says where it is wrong.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Json = Any
Read = Callable[[Json, str], Any]
"""Parses a JSON value; the second argument is its path, for error messages."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class RefusedJson(ValueError):
    """The JSON is not what was expected; the message says where."""


def parsed(text: str | bytes) -> Json:
    """Parse any JSON. Raises RefusedJson."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedJson(f"it is not JSON: {error}") from None


def integer(raw: Json, where: str) -> int:
    """Returns a signed 64-bit integer."""
    if type(raw) is not int or not INT64_MIN <= raw <= INT64_MAX:
        raise RefusedJson(f"{where} is not a whole number of 64 bits")
    return raw


def natural(raw: Json, where: str) -> int:
    """Returns an integer that is not negative."""
    if integer(raw, where) < 0:
        raise RefusedJson(f"{where} is negative")
    return int(raw)


def boolean(raw: Json, where: str) -> bool:
    """Returns a boolean."""
    if type(raw) is not bool:
        raise RefusedJson(f"{where} is neither true nor false")
    return raw


def text(raw: Json, where: str) -> str:
    """Returns a string."""
    if type(raw) is not str:
        raise RefusedJson(f"{where} is not a string")
    return raw


def unsigned(digits: int) -> Read:
    """Returns a parser of numbers written as hexadecimal digits: JSON readers may keep only 53 bits."""

    def read(raw: Json, where: str) -> int:
        if not re.fullmatch(f"[0-9a-f]{{{digits}}}", text(raw, where)):
            raise RefusedJson(f"{where} is not a hexadecimal number of length {digits}")
        return int(raw, 16)

    return read


def binary(raw: Json, where: str) -> bytes:
    """Returns bytes from base64."""
    try:
        return base64.b64decode(text(raw, where), validate=True)
    except binascii.Error:
        raise RefusedJson(f"{where} is not base64") from None


def binary_text(data: bytes) -> str:
    """Returns bytes as base64, for `binary`."""
    return base64.b64encode(data).decode()


def nullable(read: Read) -> Read:
    """Returns a parser that accepts null besides what `read` accepts."""
    return lambda raw, where: None if raw is None else read(raw, where)


def several(read: Read) -> Read:
    """Returns a parser of lists, which become tuples."""

    def read_all(raw: Json, where: str) -> tuple[Any, ...]:
        if type(raw) is not list:
            raise RefusedJson(f"{where} is not a list")
        return tuple(read(each, f"{where}[{number}]") for number, each in enumerate(raw))

    return read_all


def mapping(read_name: Callable[[str, str], Any], read: Read) -> Read:
    """Returns a parser of objects whose names are parsed too, by `read_name`."""

    def read_all(raw: Json, where: str) -> dict[Any, Any]:
        if type(raw) is not dict:
            raise RefusedJson(f"{where} is not an object")
        return {read_name(name, where): read(each, f"{where}.{name}") for name, each in raw.items()}

    return read_all


def value_of(kind: type[T], reads: Mapping[str, Read]) -> Read:
    """Returns a parser of a dataclass; fields that are not in `reads` are integers."""
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]

    def read(raw: Json, where: str) -> T:
        if type(raw) is not dict:
            raise RefusedJson(f"{where} is not an object")
        if raw.keys() != set(fields):
            odd = sorted(raw.keys() ^ set(fields))
            raise RefusedJson(f"{where} lacks or should not have {', '.join(odd)[:200]}")
        try:
            return kind(
                **{name: reads.get(name, integer)(raw[name], f"{where}.{name}") for name in fields}
            )
        except AssertionError as error:
            raise RefusedJson(f"{where}: {error}") from None

    return read

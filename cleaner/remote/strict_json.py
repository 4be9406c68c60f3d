"""Strict JSON for frozen values: no field may be missing, unknown or of another type.

The JSON comes from another process, maybe of another release: bad input is refused completely, with a
sentence that says where it is wrong. msgspec decodes and checks it; a form says what it checks.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from msgspec import DecodeError, Meta, Struct, defstruct, json

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]


class RefusedJson(ValueError):
    """The JSON is not what was expected; the message says where."""


def hexadecimal(digits: int) -> Any:
    """Returns the form of numbers as hexadecimal digits: JSON readers may keep only 53 bits."""
    return Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{digits}}}\Z")]


def form_of(kind: type[Any], **forms: Any) -> type[Struct]:
    """Returns the form of a dataclass: every field is required.

    Args:
        forms: the forms of fields that are not Int64, and of fields that only the JSON has.
    """
    fields = dict.fromkeys(_names(kind), Int64) | forms
    return defstruct(kind.__name__, list(fields.items()), forbid_unknown_fields=True)


def value_of(kind: type[T], decoded: Struct, **converted: Any) -> T:
    """Returns the dataclass for a decoded form; `converted` replaces the values of fields."""
    return kind(**{name: getattr(decoded, name) for name in _names(kind)} | converted)


def decode(data: str | bytes, form: type[S], what: str) -> S:
    """Decode and check JSON. Raises RefusedJson; `what` names the JSON in its message."""
    try:
        return json.decode(data, type=form)
    except (DecodeError, ValueError, RecursionError) as error:
        raise RefusedJson(f"the {what} is refused: {error}") from None


def binary_text(data: bytes) -> str:
    """Returns bytes as base64, which `decode` reads for a field of type bytes."""
    return base64.b64encode(data).decode()


def _names(kind: Any) -> Iterable[str]:
    """Returns the names of a dataclass's fields. `dataclasses.fields` would take most of the time."""
    names: Iterable[str] = kind.__dataclass_fields__
    return names

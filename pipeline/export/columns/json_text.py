"""Returns JSON in a column of text as Spark's `from_json` writes it: by Jackson, without spaces.

    true               true              1.50       1.5
    {"b": 1, "b": 2}   {"b":1,"b":2}     1e3        1000.0

Numbers with a point or an exponent are written as Java does it. Of those with more than 15 digits, or
far from 1, versions of Java disagree about the last digit: they are refused.

Source: Jackson, JsonGenerator.copyCurrentStructure; Java, Double.toString.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import msgspec

DIGITS_MAX = 15
NEAR_MIN, NEAR_MAX = 1e-15, 1e15
PLAIN_MIN, PLAIN_MAX = 1e-3, 1e7
"""Java writes numbers between these without an exponent."""

_ESCAPED = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, in their order. A name may be there twice."""


def text(value: str | msgspec.Raw) -> str | None:
    """Returns the text of a column; None for null. Raises ValueError, RecursionError."""
    if isinstance(value, str):
        return value
    data = bytes(value)
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str)
    found = _READER.decode(data.decode())
    return None if found is None else _written(found)


def _written(node: Any) -> str:
    match node:
        case _Pairs():
            return "{" + ",".join(f"{_quoted(name)}:{_written(each)}" for name, each in node) + "}"
        case list():
            return "[" + ",".join(map(_written, node)) + "]"
        case str():
            return _quoted(node)
        case float():
            return java_double(node)
        case bool() | None:
            return "null" if node is None else str(node).lower()
        case _:
            return str(node)


def _quoted(value: str) -> str:
    return '"' + _ESCAPED.sub(_escape, value) + '"'


def _escape(found: re.Match[str]) -> str:
    if found[0] in _SHORT:
        return _SHORT[found[0]]
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


def _number(written: str) -> float:
    """Returns a number with a point or an exponent. Raises ValueError: Java may write another one."""
    found = float(written)
    if found != 0 and not NEAR_MIN <= abs(found) < NEAR_MAX:
        raise ValueError("it is far from 1")
    if len(Decimal(repr(found)).normalize().as_tuple().digits) > DIGITS_MAX:
        raise ValueError(f"it has more than {DIGITS_MAX} digits")
    return found


def java_double(value: float) -> str:
    """Returns the text that Java writes for a number of at most 15 digits that is near to 1."""
    if value == 0 or PLAIN_MIN <= abs(value) < PLAIN_MAX:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *more = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(more) or '0'}E{int(exponent) + len(more)}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_READER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_float=_number, parse_constant=_no_constant
)

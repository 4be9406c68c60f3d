"""Compares JSON with a JSON Schema: of the keywords of 2020-12, those that our schemas use.

An unknown keyword is an error, so that nothing passes because it was not looked at.
"""

from __future__ import annotations

from typing import Any

SAYS_NOTHING = {"$schema", "$defs", "title", "description", "default", "discriminator"}
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def faults(
    value: Any,
    schema: dict[str, Any],
    *,
    root: dict[str, Any] | None = None,
    is_closed: bool = False,
) -> list[str]:
    """Returns what a value has against a schema; nothing if it is as the schema says.

    Args:
        root: the schema in whose `$defs` references are looked up.
        is_closed: whether a member that the schema does not name is a fault.
    """
    root = root or schema
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword in SAYS_NOTHING:
            continue
        found += _check(keyword, wanted, value, schema, root, is_closed)
    return found


def _check(
    keyword: str,
    wanted: Any,
    value: Any,
    schema: dict[str, Any],
    root: dict[str, Any],
    is_closed: bool,
) -> list[str]:
    match keyword:
        case "$ref":
            referred = root["$defs"][wanted.removeprefix("#/$defs/")]
            return faults(value, referred, root=root, is_closed=is_closed)
        case "anyOf":
            each = [faults(value, one, root=root, is_closed=is_closed) for one in wanted]
            return [] if [] in each else [f"{value!r} is none of these: {each}"]
        case "type":
            is_it = isinstance(value, TYPES[wanted]) and (
                wanted == "boolean" or not isinstance(value, bool)
            )
            return [] if is_it else [f"{value!r} is no {wanted}"]
        case "enum":
            return [] if value in wanted else [f"{value!r} is not in {wanted}"]
        case "minimum":
            return [] if value >= wanted else [f"{value!r} is below {wanted}"]
        case "maximum":
            return [] if value <= wanted else [f"{value!r} is above {wanted}"]
        case "required":
            return [f"{name} is missing" for name in wanted if name not in value]
        case "properties":
            unknown = [f"{name} is not described" for name in value if name not in wanted]
            return (unknown if is_closed else []) + [
                fault
                for name, described in wanted.items()
                if name in value
                for fault in faults(value[name], described, root=root, is_closed=is_closed)
            ]
        case "additionalProperties":
            known = schema.get("properties", {})
            return [
                fault
                for name, member in value.items()
                if name not in known
                for fault in faults(member, wanted, root=root, is_closed=is_closed)
            ]
        case _:
            raise NotImplementedError(keyword)

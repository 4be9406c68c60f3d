"""An Avro schema as one text, with everything that it refers to inside. Pure.

A registry gives a schema that refers to others in parts. Who reads values with a library that knows no
references, such as Spark, needs each named type where it is used first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from schemas.outcomes import UnsupportedSchema
from schemas.schema import Schema

NAMED_TYPES = frozenset({"record", "error", "enum", "fixed"})
NESTED_MAX = 200


def whole_avro_schema(schema: Schema) -> str:
    """Returns the JSON text of a schema without references. Raises UnsupportedSchema."""
    try:
        parts = {each.name: _read(each.text) for each in schema.references}
        return msgspec.json.encode(_Inlining(parts).of(_read(schema.text), "", 0)).decode()
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise UnsupportedSchema(f"it is no Avro schema: {type(error).__name__}: {error}") from error


def record_of_fields(text: str, names: Collection[str]) -> str:
    """Returns a record's schema with some of its fields only: a reader that uses it skips the rest.

    A type that one of the other fields defines is defined where it is used first.

    Args:
        text: a schema without references, as JSON.

    Raises:
        UnsupportedSchema: it is no record, or lacks one of the fields.
    """
    try:
        record = _read(text)
        fields = {each["name"]: each for each in record["fields"]}
        if missing := [name for name in names if name not in fields]:
            raise UnsupportedSchema(f"it has no field {missing[0]}")
        namespace = _namespace_inside(record, "")
        parts: dict[str, Any] = {}
        for each in record["fields"]:
            _collect(each["type"], namespace, parts)
        pruned = record | {"fields": [fields[name] for name in names]}
        return msgspec.json.encode(_Inlining(parts).of(pruned, "", 0)).decode()
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnsupportedSchema("it is no record in Avro") from error


def field_paths(text: str, *, with_aliases: bool = False) -> frozenset[str]:
    """Returns the paths of all fields of a schema without references, such as `address.city`.

    A field of a record within itself has one path only. With aliases a field has a path by each.
    Raises UnsupportedSchema.
    """
    fields = _fields(text)
    if with_aliases:
        return frozenset(path for each in fields for path in each.paths)
    return frozenset(each.paths[0] for each in fields)


def missing_fields(writer: str, reader: str) -> list[str]:
    """Returns the paths of the fields that a reader needs and a writer lacks: those without a default.

    Both are schemas without references. A field is found by its aliases in the reader's, too. Raises
    UnsupportedSchema.
    """
    has = field_paths(writer)
    needed = (each for each in _fields(reader) if "default" not in each.field)
    return sorted(
        each.paths[0]
        for each in needed
        if has.isdisjoint(each.paths) and (not each.within or not has.isdisjoint(each.within))
    )


def column_defaults(text: str, *, within: str | None = None) -> dict[str, Any]:
    """Returns the defaults of a record's fields that are not null, by the fields' names.

    Args:
        text: a schema without references.
        within: the field that has the record; None: the schema is the record.

    Raises:
        UnsupportedSchema: it is no schema.
    """
    parent = () if within is None else (within,)
    fields = (each.field for each in _fields(text) if each.within == parent)
    return {each["name"]: each["default"] for each in fields if each.get("default") is not None}


def column_aliases(text: str, *, within: str | None = None) -> dict[str, list[str]]:
    """Returns the aliases of a record's fields that have any. Args and errors as `column_defaults`."""
    parent = () if within is None else (within,)
    fields = (each.field for each in _fields(text) if each.within == parent)
    return {each["name"]: each["aliases"] for each in fields if each.get("aliases")}


def with_aliases(
    text: str, aliases: Mapping[str, Sequence[str]], *, within: str | None = None
) -> str:
    """Returns a record's schema with more aliases of its fields, by the fields' names.

    Args:
        text: a schema without references.
        within: the field that has the record, in a union or not; None: the schema is the record.

    Raises:
        UnsupportedSchema: it is no record, or lacks one of the fields.
    """
    try:
        root = _read(text)
        record = root if within is None else _record_in(root, within)
        fields = {each["name"]: each for each in record["fields"]}
        for name, more in aliases.items():
            if name not in fields:
                raise UnsupportedSchema(f"it has no field {name}")
            fields[name]["aliases"] = [*fields[name].get("aliases", ()), *more]
    except (msgspec.DecodeError, KeyError, TypeError, StopIteration) as error:
        raise UnsupportedSchema("it is no record in Avro") from error
    return msgspec.json.encode(root).decode()


def _record_in(root: Any, name: str) -> Any:
    """Returns the record that a field has. Raises StopIteration, KeyError or TypeError: it has none."""
    namespace = _namespace_inside(root, "")
    parts: dict[str, Any] = {}
    for each in root["fields"]:
        _collect(each["type"], namespace, parts)
    kind = next(each["type"] for each in root["fields"] if each["name"] == name)
    branches = kind if isinstance(kind, list) else [kind]
    named = (
        parts.get(f"{namespace}.{each}", parts.get(each)) if isinstance(each, str) else each
        for each in branches
    )
    return next(each for each in named if isinstance(each, dict) and "fields" in each)


class _Field(NamedTuple):
    """A field somewhere in a schema."""

    paths: tuple[str, ...]
    """The first by names only, the others by aliases, too."""
    within: tuple[str, ...]
    """The paths of the field that has its record; none if the record is the schema."""
    field: dict[str, Any]


def _fields(text: str) -> list[_Field]:
    """Returns all fields of a schema, those of a record within itself once. Raises UnsupportedSchema."""
    found: list[_Field] = []
    parts: dict[str, Any] = {}

    def walk(node: Any, namespace: str, within: tuple[str, ...], inside: tuple[str, ...]) -> None:
        match node:
            case str():
                for full in (f"{namespace}.{node}", node):
                    if full in parts and full not in inside:
                        walk(parts[full], namespace, within, inside)
            case list():
                for each in node:
                    walk(each, namespace, within, inside)
            case {"type": "record" | "error"}:
                records = (*inside, _full_name(node, namespace) or "")
                for field in node["fields"]:
                    paths = _paths(field, within)
                    found.append(_Field(paths, within, field))
                    walk(field["type"], _namespace_inside(node, namespace), paths, records)
            case _:
                for each in (node.get("items"), node.get("values"), node["type"]):
                    if each is not None:
                        walk(each, namespace, within, inside)

    try:
        schema = _read(text)
        _collect(schema, "", parts)
        walk(schema, "", (), ())
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnsupportedSchema("it is no schema in Avro") from error
    return found


def _paths(field: dict[str, Any], within: tuple[str, ...]) -> tuple[str, ...]:
    prefixes = [f"{path}." for path in within] or [""]
    names = (field["name"], *field.get("aliases", ()))
    return tuple(prefix + name for prefix in prefixes for name in names)


def _collect(node: Any, namespace: str, parts: dict[str, Any]) -> None:
    """Add the named types that a type defines, by their full names."""
    if isinstance(node, list):
        for each in node:
            _collect(each, namespace, parts)
    elif isinstance(node, dict):
        kind = node["type"]
        if isinstance(kind, str) and kind in NAMED_TYPES:
            inside = _namespace_inside(node, namespace)
            name = node["name"].rpartition(".")[2]
            parts[f"{inside}.{name}" if inside else name] = node | {"namespace": inside}
            for each in node.get("fields", ()):
                _collect(each["type"], inside, parts)
        elif not isinstance(kind, str):
            _collect(kind, namespace, parts)
        for inner in ("items", "values"):
            if inner in node:
                _collect(node[inner], namespace, parts)


def _namespace_inside(node: dict[str, Any], namespace: str) -> str:
    """Returns the namespace of the names in a named type."""
    return str(node["name"].rpartition(".")[0] or node.get("namespace", namespace))


class _Inlining:
    """Puts each part where it is named first."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts = parts
        """By the names that the registry gives them; taken out when they are used."""
        self._placed: dict[str, str] = {}
        """The full names of those that were used, by the same names and by their full ones."""
        self._defined_names = set[str]()
        """The full names of the types whose definitions stand somewhere already."""

    def of(self, node: Any, namespace: str, depth: int) -> Any:
        if depth > NESTED_MAX:
            raise UnsupportedSchema(f"it is nested deeper than {NESTED_MAX}")
        match node:
            case str():
                return self._named(node, namespace, depth)
            case list():
                return [self.of(each, namespace, depth + 1) for each in node]
            case {"type": str(kind)} if kind in NAMED_TYPES:
                return self._defined(node, namespace, depth)
            case {"type": "array"}:
                return node | {"items": self.of(node["items"], namespace, depth + 1)}
            case {"type": "map"}:
                return node | {"values": self.of(node["values"], namespace, depth + 1)}
            case {"type": inner}:
                return node | {"type": self.of(inner, namespace, depth + 1)}
            case _:
                raise UnsupportedSchema("it is no Avro schema: a part of it has no type")

    def _named(self, name: str, namespace: str, depth: int) -> Any:
        for key in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if key in self._placed:
                return self._placed_name(key, namespace)
            if key in self._parts:
                part = self._parts[key]
                full = _full_name(part, namespace)
                if full is not None:
                    # Not one without a name, which stands wherever it is used.
                    del self._parts[key]
                    self._placed[key] = full
                return self.of(part, namespace, depth + 1)
        return name

    def _placed_name(self, key: str, namespace: str) -> str:
        full = self._placed[key]
        if namespace and "." not in full:
            raise UnsupportedSchema(
                f"it names {full}, which has no namespace, inside of {namespace}"
            )
        return full

    def _defined(self, node: dict[str, Any], namespace: str, depth: int) -> Any:
        full, inside = _full_name(node, namespace), _namespace_inside(node, namespace)
        assert full is not None
        if full in self._defined_names:
            return full
        self._defined_names.add(full)
        self._parts.pop(full, None)
        self._placed[full] = full
        if "fields" not in node:
            return node
        fields = [
            each | {"type": self.of(each["type"], inside, depth + 1)} for each in node["fields"]
        ]
        return node | {"fields": fields}


def _full_name(part: Any, namespace: str) -> str | None:
    """Returns the full name of a part in a place, where it gets that namespace if it has none."""
    if not isinstance(part, dict) or "name" not in part:
        return None
    name, own = part["name"], part.get("namespace", namespace)
    return f"{own}.{name}" if own and "." not in name else str(name)


def _read(text: str) -> Any:
    """Returns a schema as Python values; the name of a type may stand there without quotes."""
    return text.strip() if text.strip().isidentifier() else msgspec.json.decode(text)

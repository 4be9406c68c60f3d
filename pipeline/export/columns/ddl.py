"""Reads the schemas that users write for JSON: Spark's DDL, and Spark's JSON form of a struct.

    DDL     id BIGINT NOT NULL, `a b` ARRAY<STRUCT<x: INT, y DECIMAL(10, 2)>> COMMENT 'text'
    JSON    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true}]}

Every column is nullable, also where the schema says NOT NULL, as in Spark's `from_json`.

Source: Spark's SqlBaseParser.g4 (`colTypeList`, `complexColType`), DataType.fromJson.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.export.columns.spark_types import decimal, simple, struct
from pipeline.offsets.cut import TableRefused

_TOKEN = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/"""
    r"""| (?P<quoted>`(?:[^`]|``)+`) | (?P<word>[A-Za-z0-9_]+)"""
    r"""| (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*") | (?P<mark>[<>:,()])""",
    re.VERBOSE | re.DOTALL,
)
NESTED_MAX = 50


class _NoSchema(Exception):
    """A text is no schema. The text is a clause that says why."""


def read_columns(option: str, text: str) -> pa.Schema:
    """Returns the columns that a schema names.

    Args:
        option: the command's option that has the schema, for errors.
        text: DDL, or Spark's JSON form of a struct.

    Raises:
        TableRefused: it cannot be read, or has a type that no column of an export has.
    """
    try:
        if text.lstrip().startswith("{"):
            kind = _of_json(msgspec.json.decode(text), 0)
        else:
            kind = _Ddl(text).schema()
    except (_NoSchema, ValueError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise TableRefused(f"{option} cannot be read: {error}") from error
    if not pa.types.is_struct(kind):
        raise TableRefused(f"{option} must name fields, as in `id BIGINT, name STRING`")
    return pa.schema(list(kind))


class _Ddl:
    """A parser at a token of a text."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        """Each with its kind. The last two are empty."""
        self._at = 0

    def schema(self) -> pa.DataType:
        """Returns a struct of the columns, or the type that the text is."""
        is_one_type = self._tokens[1] in {("end", ""), ("mark", "<"), ("mark", "(")}
        found = self._type(0) if is_one_type else self._fields(0)
        if self._token[0] != "end":
            raise self._unexpected()
        return found

    @property
    def _token(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _unexpected(self) -> _NoSchema:
        kind, text = self._token
        return _NoSchema(f"syntax error at {'the end' if kind == 'end' else repr(text)}")

    def _takes(self, *texts: str) -> bool:
        """Returns whether these tokens follow, in any case, and moves past them if so."""
        after = self._at + len(texts)
        found = [text.upper() for _, text in self._tokens[self._at : after]]
        if found != list(texts):
            return False
        self._at = after
        return True

    def _expect(self, mark: str) -> None:
        if not self._takes(mark):
            raise self._unexpected()

    def _take(self, *kinds: str) -> str:
        kind, text = self._token
        if kind not in kinds:
            raise self._unexpected()
        self._at += 1
        return text

    def _fields(self, depth: int) -> pa.StructType:
        fields = [self._field(depth)]
        while self._takes(","):
            fields.append(self._field(depth))
        return struct(fields)

    def _field(self, depth: int) -> pa.Field:
        name = self._take("word", "quoted")
        self._takes(":")
        kind = self._type(depth)
        self._takes("NOT", "NULL")
        if self._takes("COMMENT"):
            self._take("text")
        return pa.field(name, kind)

    def _type(self, depth: int) -> pa.DataType:
        if depth > NESTED_MAX:
            raise _NoSchema(f"it is nested deeper than {NESTED_MAX}")
        name = self._take("word").lower()
        if name in {"struct", "array", "map"}:
            return self._nested(name, depth + 1)
        if name in {"decimal", "dec", "numeric"}:
            return self._decimal()
        return simple(name)

    def _nested(self, name: str, depth: int) -> pa.DataType:
        self._expect("<")
        if name == "struct":
            found = self._fields(depth)
        elif name == "array":
            found = pa.list_(self._type(depth))
        else:
            key = self._type(depth)
            self._expect(",")
            found = pa.map_(key, self._type(depth))
        self._expect(">")
        return found

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._takes("("):
            precision = int(self._take("word"))
            if self._takes(","):
                scale = int(self._take("word"))
            self._expect(")")
        return decimal(precision, scale)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Returns the tokens with their kinds. Raises _NoSchema."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _NoSchema(f"{text[at : at + 20]!r} must stand in `backquotes`")
        at, kind = match.end(), match.lastgroup
        if kind == "quoted":
            found.append((kind, match[0][1:-1].replace("``", "`")))
        elif kind is not None:
            found.append((kind, match[0]))
    return [*found, ("end", ""), ("end", "")]


def _of_json(node: Any, depth: int) -> pa.DataType:
    """Returns the type of Spark's JSON form. Raises ValueError, KeyError, TypeError, _NoSchema."""
    if depth > NESTED_MAX:
        raise _NoSchema(f"it is nested deeper than {NESTED_MAX}")
    if isinstance(node, str):
        found = re.fullmatch(r"decimal\((\d+), *(\d+)\)", node)
        if found is not None:
            return decimal(int(found[1]), int(found[2]))
        return decimal(10, 0) if node == "decimal" else simple(node)
    match node["type"]:
        case "struct":
            fields = node["fields"]
            return struct(
                [pa.field(each["name"], _of_json(each["type"], depth + 1)) for each in fields]
            )
        case "array":
            return pa.list_(_of_json(node["elementType"], depth + 1))
        case "map":
            return pa.map_(
                _of_json(node["keyType"], depth + 1), _of_json(node["valueType"], depth + 1)
            )
        case other:
            raise _NoSchema(f"it has the type {other}")

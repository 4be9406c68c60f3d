"""The columns of an Avro schema, as Spark's `from_avro` has them.

    int, long           INT, BIGINT       date                       DATE
    float, double       FLOAT, DOUBLE     timestamp-millis, -micros  TIMESTAMP
    string, enum        STRING            local-timestamp-...        TIMESTAMP_NTZ
    bytes, fixed        BINARY            decimal                    DECIMAL
    record, array, map  STRUCT, ARRAY, MAP with texts as keys
    a union             the type beside null; BIGINT of int and long, DOUBLE of float and double

Other logical types are what stores them, except for time-micros: few tables can have Spark's TIME.

Source: Spark's SchemaConverters.toSqlType.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa

from pipeline.export.columns.shapes import Array, Leaf, Map, Shape, Struct
from pipeline.export.columns.spark_types import TIMESTAMP, TIMESTAMP_NTZ, decimal

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_OF_UNIONS = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_TIMES = {
    "timestamp-millis": (TIMESTAMP, 1000),
    "timestamp-micros": (TIMESTAMP, 1),
    "local-timestamp-millis": (TIMESTAMP_NTZ, 1000),
    "local-timestamp-micros": (TIMESTAMP_NTZ, 1),
}


class AvroShapes:
    """Makes shapes of the parts of one parsed schema, whose objects are fastavro's."""

    def __init__(self, named: dict[str, Any]) -> None:
        """Args: named: the definitions of the schema's named types, by their full names."""
        self._named = named

    def of(self, node: Any, inside: tuple[str, ...] = ()) -> Shape:
        """Returns the shape of a part. Raises ValueError: no column has its type.

        Args:
            inside: the names of the records around it.
        """
        match node:
            case list():
                return self._union(node, inside)
            case str() if node not in _PLAIN and node in self._named:
                return self.of(self._named[node], inside)
            case str():
                return _leaf({"type": node})
            case {"type": "record" | "error"}:
                return self._record(node, inside)
            case {"type": "array"}:
                return Array(self.of(node["items"], inside))
            case {"type": "map"}:
                return Map(self.of(node["values"], inside))
            case {"type": str(name)} if name in _PLAIN:
                return _leaf(node)
            case _:
                return self.of(node["type"], inside)

    def _record(self, node: Any, inside: tuple[str, ...]) -> Struct:
        name = node["name"]
        if name in inside:
            raise ValueError(f"the record {name} has itself inside")
        within = (*inside, name)
        fields = [
            (each["name"], itemgetter(each["name"]), self.of(each["type"], within))
            for each in node["fields"]
        ]
        if not fields and inside:
            raise ValueError(f"the record {name} has no fields")
        return Struct(tuple(fields))

    def _union(self, branches: list[Any], inside: tuple[str, ...]) -> Shape:
        others = [each for each in branches if each != "null"]
        if len(others) == 1:
            return self.of(others[0], inside)
        names = frozenset(each for each in others if isinstance(each, str))
        if len(names) == len(others) and names in _OF_UNIONS:
            return _leaf({"type": _OF_UNIONS[names]})
        raise ValueError("a union of several types beside null is no column")


def _leaf(node: dict[str, Any]) -> Leaf:
    kind, logical = node["type"], node.get("logicalType")
    if kind not in _PLAIN or (kind == "long" and logical == "time-micros"):
        raise ValueError(f"no column has the type {logical or kind}")
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        scale = node.get("scale", 0)
        return Leaf(decimal(node["precision"], scale), _decimal_of(scale))
    if kind == "int" and logical == "date":
        return Leaf(pa.date32())
    if kind == "long" and logical in _TIMES:
        column, factor = _TIMES[logical]
        return Leaf(column, None if factor == 1 else factor.__mul__)
    return Leaf(_PLAIN[kind])


def _decimal_of(scale: int) -> Callable[[bytes], Decimal]:
    def read(data: bytes) -> Decimal:
        if not data:
            raise ValueError("a decimal has no bytes")
        number = int.from_bytes(data, signed=True)
        sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
        # Without the rounding of a context.
        return Decimal((sign, digits, -scale))

    return read

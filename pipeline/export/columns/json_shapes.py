"""The types by which msgspec decodes JSON into the objects of a shape.

A strict type takes text only where a column has text, which is fast. A lenient one takes anything there,
which becomes text as in Spark (`json_text.py`).
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa

from pipeline.export.columns import json_scalars
from pipeline.export.columns.json_text import text
from pipeline.export.columns.shapes import Array, Leaf, Map, Shape, Struct
from pipeline.offsets.cut import TableRefused


class MapKey(str):
    """A name in a map. Two equal ones in one map are an error, because a table has the first or both."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if str.__eq__(self, str(other)):
            raise ValueError(f"a map has {self!r} twice")
        return False


def as_map_key(kind: type, value: Any) -> Any:
    """Returns a name in a map; the hook of a decoder."""
    assert kind is MapKey
    return MapKey(value)


def shape_of(kind: pa.StructType) -> Struct:
    """Returns where decoded objects have their columns. Raises TableRefused."""
    fields = [(each.name, attrgetter(f"f{at}"), _shape(each.type)) for at, each in enumerate(kind)]
    return Struct(tuple(fields))


def _shape(kind: pa.DataType) -> Shape:
    if pa.types.is_struct(kind):
        return shape_of(kind)
    if pa.types.is_list(kind):
        return Array(_shape(kind.value_type))
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise TableRefused("maps in json have keys of the type STRING")
        return Map(_shape(kind.item_type))
    return _leaf(kind)


def _leaf(kind: pa.DataType) -> Leaf:
    if pa.types.is_string(kind):
        return Leaf(kind, text, partial(pa.array, type=kind))
    if pa.types.is_float64(kind):
        return Leaf(kind, json_scalars.double, partial(pa.array, type=kind))
    if pa.types.is_float32(kind):
        return Leaf(kind, json_scalars.single)
    if pa.types.is_decimal128(kind):
        usual = json_scalars.usual_decimals_of(kind.precision, kind.scale)
        return Leaf(kind, json_scalars.decimal_of(kind.precision, kind.scale), usual)
    if pa.types.is_date32(kind):
        return Leaf(kind, json_scalars.day, json_scalars.usual_days)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return Leaf(kind, json_scalars.local_timestamp)
    if pa.types.is_timestamp(kind):
        return Leaf(kind, json_scalars.timestamp, json_scalars.usual_timestamps)
    return Leaf(kind)


def type_of(kind: pa.StructType, *, is_lenient: bool, is_closed: bool) -> type[msgspec.Struct]:
    """Returns the class whose objects have the shape of a struct.

    Args:
        is_lenient: whether text may be anything.
        is_closed: whether a field that the struct lacks is an error.

    Raises:
        ValueError: msgspec does not take the name of a field.
    """

    def of(kind: pa.DataType) -> Any:
        if pa.types.is_struct(kind):
            return struct(kind) | None
        if pa.types.is_list(kind):
            return GenericAlias(list, (of(kind.value_type),)) | None
        if pa.types.is_map(kind):
            return GenericAlias(dict, (MapKey, of(kind.item_type))) | None
        if pa.types.is_string(kind):
            return msgspec.Raw if is_lenient else str | None
        return _scalar(kind)

    def struct(kind: pa.StructType) -> type[msgspec.Struct]:
        return msgspec.defstruct(
            "Row",
            [(f"f{at}", of(each.type), None) for at, each in enumerate(kind)],
            rename={f"f{at}": each.name for at, each in enumerate(kind)},
            forbid_unknown_fields=is_closed,
            gc=False,
        )

    return struct(kind)


def _scalar(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return bool | None
    if pa.types.is_integer(kind):
        least, most = -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
        return Annotated[int, msgspec.Meta(ge=least, le=most)] | None
    if pa.types.is_float64(kind):
        return float | Literal[tuple(json_scalars.SPECIAL)] | None
    if pa.types.is_binary(kind):
        return bytes | None
    if pa.types.is_timestamp(kind):
        return str | None if kind.tz is None else int | str | None
    # The others are read from their digits: a float would round them.
    return str | None if pa.types.is_date32(kind) else msgspec.Raw

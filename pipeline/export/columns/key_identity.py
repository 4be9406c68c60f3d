"""Returns bytes that are equal for two keys exactly if Spark groups the keys together."""

from __future__ import annotations

import math

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_encode = msgspec.msgpack.Encoder().encode


def identity_of(column: pa.Array) -> pa.BinaryArray:
    """Returns the bytes of each key; null where the key is null."""
    keys = _comparable(column).to_pylist()
    return pa.array([None if key is None else _encode(key) for key in keys], pa.binary())


def _comparable(column: pa.Array) -> pa.Array:
    """Returns a column whose Python values are equal exactly if Spark's are."""
    kind = column.type
    if pa.types.is_floating(kind):
        # Spark takes both zeros as one, and each NaN as the same.
        unsigned = pc.add(column, pa.scalar(0, kind))
        return pc.if_else(pc.is_nan(unsigned), pa.scalar(math.nan, kind), unsigned)
    if pa.types.is_timestamp(kind):
        # Python's have fewer years.
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.int32())
    if pa.types.is_struct(kind):
        inner = [_comparable(each) for each in column.flatten()]
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(inner, names, mask=column.is_null()) if inner else column
    if pa.types.is_list(kind):
        inner = _comparable(column.values)
        return pa.ListArray.from_arrays(column.offsets, inner, mask=column.is_null())
    return column

"""The types of Spark that a table's columns have, as Arrow has them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipeline.offsets.cut import TableRefused

PRECISION_MAX = 38
TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}


def simple(name: str) -> pa.DataType:
    """Returns the type of a name without parameters. Raises ValueError."""
    if name.lower() not in _SIMPLE:
        raise ValueError(f"no column has the type {name}")
    return _SIMPLE[name.lower()]


def decimal(precision: int, scale: int) -> pa.DataType:
    """Returns the type of decimals. Raises ValueError."""
    if not 0 <= scale <= precision <= PRECISION_MAX or precision == 0:
        raise ValueError(f"DECIMAL({precision}, {scale}) is no type")
    return pa.decimal128(precision, scale)


def struct(fields: Sequence[pa.Field]) -> pa.StructType:
    """Returns the type of a struct. Raises ValueError: two fields have one name, in any case."""
    lower = [field.name.lower() for field in fields]
    twice = [field.name for field in fields if lower.count(field.name.lower()) > 1]
    if twice:
        raise ValueError(f"two fields are named {twice[0]}")
    return pa.struct(fields)


def of_table(name: str, kind: pa.DataType) -> pa.DataType:
    """Returns the type that a column of an existing table has here.

    Other writers store the same columns with other units and offsets.

    Raises:
        TableRefused: no column that Spark's jobs write has this type.
    """
    if pa.types.is_timestamp(kind):
        return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, of_table(name, each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(of_table(name, kind.key_type), of_table(name, kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(of_table(name, kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if kind in _SIMPLE.values() or pa.types.is_decimal128(kind):
        return kind
    raise TableRefused(
        f"the column {name} of the table has the type {kind}, which is not known here"
    )

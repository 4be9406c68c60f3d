"""Finds the placeholder that Debezium writes for a value that the database did not send.

Source: Debezium's documentation of its PostgreSQL connector, "Toasted values".
"""

from __future__ import annotations

from base64 import b64encode
from functools import reduce
from hashlib import md5
from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from pipeline.tables.events.event_fields import EVENTS
from pipeline.tables.events.event_rows import EVENT, row_left
from pipeline.tables.payload_options import Envelope


def why_unavailable(events: DataFrame, placeholder: str) -> Column:
    """Returns which value of a row the database did not send, as a clause; null if it sent all."""
    missing = F.get(unavailable_columns(events, placeholder), F.lit(0))
    says = ", which had not changed: let it send whole rows (in PostgreSQL: REPLICA IDENTITY FULL)"
    return F.concat(F.lit("the database did not send the value of "), missing, F.lit(says))


def unavailable_columns(events: DataFrame, placeholder: str) -> Column:
    """Returns the names of the row's columns that have the placeholder."""
    fields = events.schema[EVENT].dataType["after"].dataType.fields
    named = (
        F.when(
            is_unavailable(F.col(f"{EVENT}.after.`{each.name}`"), each.dataType, placeholder),
            F.lit(each.name),
        )
        for each in fields
    )
    found = F.array_compact(F.array(*named))
    has_row = row_left(EVENTS[Envelope.DEBEZIUM]).isNotNull()
    return F.when(has_row, found).otherwise(F.array().cast("array<string>"))


def is_unavailable(value: Column, kind: DataType, placeholder: str) -> Column:
    """Returns whether a value is the placeholder, in one of the forms that it has by type.

        text          the placeholder; JSON of an hstore with it; the base64 of bytes in JSON; a UUID
        bytes         its bytes
        numbers       an array of its bytes
        others        one of these inside

    Source: Debezium, UnchangedToastedPlaceholder.java.
    """
    data = placeholder.encode()
    if isinstance(kind, StringType):
        # As Java's UUID.nameUUIDFromBytes.
        as_uuid = UUID(bytes=md5(data, usedforsecurity=False).digest(), version=3)
        forms = (b64encode(data).decode(), str(as_uuid))
        return value.contains(placeholder) | value.isin(*forms)
    if isinstance(kind, BinaryType):
        return value == F.lit(data)
    if isinstance(kind, ArrayType):
        if isinstance(kind.elementType, NumericType):
            return value.cast("array<string>") == F.array(*(F.lit(str(each)) for each in data))
        return F.exists(value, lambda each: is_unavailable(each, kind.elementType, placeholder))
    if isinstance(kind, MapType):
        return is_unavailable(F.map_keys(value), ArrayType(kind.keyType), placeholder)
    if isinstance(kind, StructType):
        inner = (
            is_unavailable(value.getField(each.name), each.dataType, placeholder)
            for each in kind.fields
        )
        return reduce(lambda one, other: one | other, inner, F.lit(False))
    return F.lit(False)

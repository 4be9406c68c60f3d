"""Reads the change events of Debezium: the row that an event leaves, and whether it deletes the row.

    {"before": ..., "after": {"id": 7, "note": "hi"}, "op": "u", "source": ...}

    c, r, u    the row is `after`: created, read by a snapshot, updated
    d          the row is gone; a tombstone follows, which says the same
    t          all rows are gone (`truncations.py`); the event has no key

JSON may have the event within {"schema": ..., "payload": the event}, as Connect's converter writes it.
Of an event only `op` and `after` are read, so a connector may change its `source`.

A row lacks a value that the database did not send, because it had not changed: there stands a
placeholder. The earlier event with the value may be gone from a compacted topic, so the row is not
known.

Source: Debezium's documentation, "Data change events" and "Toasted values" of its PostgreSQL connector.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
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

from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_columns import type_of, with_avro
from pipeline.tables.json_columns import JSON, infer, is_text, with_json, with_json_text
from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.wire_columns import NO_SCHEMA
from schemas.avro_schema import record_of_fields
from schemas.outcomes import UnsupportedSchema

LEAVES_ROW = ("c", "r", "u")
TRUNCATES = "t"
EVENT = "_event"


def with_avro_event(last: DataFrame, payload: Payload) -> DataFrame:
    """Add `_event`, a struct of `op` and `after`; null if a value is no event.

    Raises:
        TableRefused: the schema is not that of an event, or as `with_avro`.
    """
    read = with_avro_fields(last, payload, EVENT, ("op", "after"))
    if not isinstance(after_of(type_of(read, EVENT)), StructType):
        raise TableRefused(
            "--value-schema is not that of an event of Debezium: `after` is no record"
        )
    return read.withColumn(EVENT, F.col(f"{EVENT}.value"))


def with_avro_fields(
    records: DataFrame, payload: Payload, name: str, fields: Sequence[str]
) -> DataFrame:
    """Add a struct whose `value` has these fields of an event. Raises TableRefused."""
    try:
        reader = record_of_fields(payload.value.schema or "", fields)
    except UnsupportedSchema as error:
        raise TableRefused(
            f"--value-schema is not that of an event of Debezium: {error}"
        ) from error
    return with_avro(records, name, payload.value, payload.on_unparsable, reader=reader)


def with_op(records: DataFrame, payload: Payload, name: str) -> DataFrame:
    """Add the `op` of events; null if a value is none. Raises TableRefused as `with_avro_event`."""
    if payload.value_format is PayloadFormat.AVRO:
        read = with_avro_fields(records, payload, name, ("op",))
        return read.withColumn(name, F.col(f"{name}.value.op"))
    texts = with_json_text(records, payload.value, payload.on_unparsable)
    text = F.when(is_text(F.col(JSON)), F.col(JSON).cast("string"))
    found = (F.get_json_object(text, f"$.{path}") for path in ("payload.op", "op"))
    return texts.withColumn(name, F.coalesce(*found)).drop(JSON)


def with_json_event(last: DataFrame, payload: Payload, row: StructType | None) -> DataFrame:
    """Add `_event`, a struct of `op` and `after`; null or without an `op` if a value is no event.

    Args:
        row: the columns of `after`; None to infer them from all events.

    Raises:
        TableRefused: nothing can be inferred, or as `with_json_text`.
    """
    texts, data = with_json_text(last, payload.value, payload.on_unparsable), F.col(JSON)
    if row is None:
        text = data.cast("string")
        inner = (F.get_json_object(text, f"$.{path}") for path in ("payload.after", "after"))
        row = infer(texts, F.coalesce(*inner))
    event = StructType().add("op", StringType()).add("after", row)
    wanted = StructType([*event.fields]).add("payload", event)
    read = with_json(texts, EVENT, data, wanted).drop(JSON)
    bare = F.when(F.col(EVENT).isNotNull(), F.struct(f"{EVENT}.op", f"{EVENT}.after"))
    return read.withColumn(EVENT, F.coalesce(F.col(f"{EVENT}.payload"), bare))


def after_of(event: DataType) -> DataType | None:
    """Returns the type of the row in an event; None if that is no struct with one."""
    if not isinstance(event, StructType) or "after" not in event.names:
        return None
    return event["after"].dataType


def deletes() -> Column:
    """Returns whether an event deletes its row."""
    return F.coalesce(F.col(f"{EVENT}.op") == "d", F.lit(False))


def row_left() -> Column:
    """Returns the row that an event leaves; null if it leaves none, or is none."""
    return F.when(F.col(f"{EVENT}.op").isin(*LEAVES_ROW), F.col(f"{EVENT}.after"))


def why_no_row(events: DataFrame) -> Column:
    """Returns why an event leaves no row that is known, as a clause; null if it does, or deletes it."""
    op = F.col(f"{EVENT}.op")
    no_event = F.lit("the value is no event of Debezium of this schema")
    found = F.when(op.isNull(), F.coalesce(F.col(NO_SCHEMA), no_event))
    found = found.when(op == "d", None)
    unknown = F.concat(F.lit("an event with op="), op, F.lit(" is not known here"))
    found = found.when(~op.isin(*LEAVES_ROW), unknown)
    return found.when(row_left().isNull(), "an event leaves a row, and has none in `after`")


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
    return F.when(row_left().isNotNull(), found).otherwise(F.array().cast("array<string>"))


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

"""Reads change events: the row that an event leaves, and whether it deletes the row.

    _event    a struct of `op`, what happened, and `after`, the row

A row lacks a value that the database did not send, because it had not changed: there Debezium has a
placeholder. The earlier event with the value may be gone from a compacted topic, so the row is not
known (`placeholders.py`).

The names of the fields are those of `event_fields.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_columns import type_of, with_avro
from pipeline.tables.events.event_fields import EVENTS, EventFields
from pipeline.tables.json_columns import JSON, infer, is_text, with_json, with_json_text
from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.wire_columns import NO_SCHEMA
from schemas.avro_schema import record_of_fields
from schemas.outcomes import UnsupportedSchema

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
    """Add `_event`; null or without an `op` if a value is no event.

    Args:
        row: the columns of the row; None to infer them from all events.

    Raises:
        TableRefused: nothing can be inferred, or as `with_json_text`.
    """
    fields = EVENTS[payload.envelope]
    texts, data = with_json_text(last, payload.value, payload.on_unparsable), F.col(JSON)
    around = ("payload.", "") if fields.may_be_wrapped else ("",)
    if row is None:
        text = data.cast("string")
        inner = (F.get_json_object(text, f"$.{each}{fields.row}") for each in around)
        row = infer(texts, F.coalesce(*inner))
    event = StructType().add(fields.operation, StringType()).add(fields.row, row)
    wanted = StructType([*event.fields])
    if fields.may_be_wrapped:
        wanted = wanted.add("payload", event)
    read = with_json(texts, EVENT, data, wanted).drop(JSON)
    found = (event_in(f"{EVENT}.{each}".rstrip("."), fields) for each in around)
    return read.withColumn(EVENT, F.coalesce(*found))


def event_in(place: str, fields: EventFields) -> Column:
    """Returns the event in a struct, with `op` and `after`; null if there is none."""
    operation, row = F.col(f"{place}.{fields.operation}"), F.col(f"{place}.{fields.row}")
    return F.when(F.col(place).isNotNull(), F.struct(operation.alias("op"), row.alias("after")))


def after_of(event: DataType) -> DataType | None:
    """Returns the type of the row in an event; None if that is no struct with one."""
    if not isinstance(event, StructType) or "after" not in event.names:
        return None
    return event["after"].dataType


def deletes(fields: EventFields) -> Column:
    """Returns whether an event's key has no row after it."""
    return F.coalesce(F.col(f"{EVENT}.op").isin(*fields.leaves_none), F.lit(False))


def row_left(fields: EventFields) -> Column:
    """Returns the row that an event leaves; null if it leaves none, or is none."""
    return F.when(F.col(f"{EVENT}.op").isin(*fields.leaves_row), F.col(f"{EVENT}.after"))


def why_no_row(fields: EventFields) -> Column:
    """Returns why an event leaves no row that is known, as a clause; null if it does, or deletes it."""
    op = F.col(f"{EVENT}.op")
    found = F.when(op.isNull(), F.coalesce(F.col(NO_SCHEMA), F.lit(fields.no_event)))
    found = found.when(op.isin(*fields.leaves_none), None)
    before, behind = map(F.lit, fields.unknown)
    found = found.when(~op.isin(*fields.leaves_row), F.concat(before, op, behind))
    return found.when(row_left(fields).isNull(), fields.no_row)

"""Turns a record's bytes into a table's columns.

    key        bytes, text, or what a record says, in a column that the user may name
    value      bytes or text: one column `value`; records: a column for each field
    _unparsed  the bytes of a value that could not be parsed, if the user keeps such rows
    _topic, _partition, _offset, _timestamp   the origin of the row

Only the last record of a key is parsed, so superseded values may be malformed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.tables.avro_columns import type_of, with_avro
from pipeline.tables.events.event_fields import EVENTS
from pipeline.tables.events.event_rows import (
    EVENT,
    deletes,
    row_left,
    why_no_row,
    with_avro_event,
    with_json_event,
)
from pipeline.tables.events.placeholders import unavailable_columns, why_unavailable
from pipeline.tables.formats.column_names import (
    ENDS,
    ENDS_OF_VALUES,
    ORIGIN,
    TOMBSTONE,
    UNPARSED,
    refuse_equal_names,
)
from pipeline.tables.json_columns import (
    JSON,
    infer,
    is_text,
    read_schema,
    with_json,
    with_json_text,
)
from pipeline.tables.keys import with_read_keys
from pipeline.tables.latest import RAW_KEY
from pipeline.tables.payload_options import Envelope, OnUnparsable, Payload, PayloadFormat
from pipeline.tables.projection import projected
from pipeline.tables.row_refusal import only_if
from pipeline.tables.wire_columns import NO_SCHEMA, why_no_schema

PARSED = "_parsed"
DELETES = "_deletes"
WHY = "_why"
UNSENT = "_unsent"


def rows_of(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    """Returns the table's rows from the last records. See `parsed_of` and `rows_from`."""
    return rows_from(parsed_of(last, payload, columns), payload)


def parsed_of(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    """Read the keys and parse the values of the last records.

    Args:
        columns: the columns of the table, if it exists.

    Raises:
        TableRefused: a schema cannot be parsed or inferred, or is not available.
    """
    return parse(with_read_keys(last, payload), payload, columns)


def dead_letters_from(parsed: DataFrame) -> DataFrame:
    """Returns the records whose values could not be parsed, as they were, with the reason."""
    return parsed.where(F.col(WHY).isNotNull()).select(
        "topic", "partition", "offset", "timestamp", F.col(RAW_KEY).alias("key"), "value",
        F.col(WHY).alias("reason"),
    )  # fmt: skip


def rows_from(parsed: DataFrame, payload: Payload) -> DataFrame:
    """Returns the table's rows, with `_tombstone` for those that delete their key.

    Raises:
        TableRefused: two columns would have the same name, or as `projected`.
    """
    ours = [*ORIGIN, TOMBSTONE, *((*ENDS_OF_VALUES, ENDS) if payload.history else ())]
    refuse_equal_names([payload.key_column, *value_columns(parsed), *kept(payload), *ours])
    rows = parsed.select(
        F.col("key").alias(payload.key_column),
        *(F.col(f"{PARSED}.`{name}`") for name in value_columns(parsed)),
        *(
            [F.when(F.col(WHY).isNotNull(), F.col("value")).alias(UNPARSED)]
            if kept(payload)
            else []
        ),
        *(F.col(name.removeprefix("_")).alias(name) for name in ORIGIN),
        dead_if(payload).alias(TOMBSTONE),
    )
    return projected(rows, payload)


def dead_if(payload: Payload) -> Column:
    """Returns whether a record deletes its key, or ends the job if its value cannot be parsed."""
    is_read, deletes_key = F.col(WHY).isNull(), F.col(DELETES)
    match payload.on_unparsable:
        case OnUnparsable.FAIL:
            return only_if(is_read, deletes_key, F.col(WHY))
        case OnUnparsable.KEEP:
            return deletes_key
        case OnUnparsable.DEAD_LETTER:
            # The key's value is not known: an earlier one would be wrong.
            return deletes_key | ~is_read


def value_columns(parsed: DataFrame) -> list[str]:
    names: list[str] = parsed.schema[PARSED].dataType.names
    return names


def kept(payload: Payload) -> list[str]:
    return [UNPARSED] if payload.on_unparsable is OnUnparsable.KEEP else []


def parse(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    """Add what the values say.

    _parsed    a struct of the columns; null if there are none
    _deletes   whether the value deletes its key
    _why       why a value cannot be parsed, as a clause; null if it can be, or is a tombstone
    _unsent    with `--on-unavailable fill`: the columns whose value the database did not send
    """
    if payload.envelope is not Envelope.NONE:
        return parse_event(last, payload, columns)
    read = parse_value(last, payload, columns).withColumn(DELETES, F.col("value").isNull())
    is_bad = F.col("value").isNotNull() & F.col(PARSED).isNull()
    why = F.coalesce(F.col(NO_SCHEMA), F.lit(payload.value.misfit))
    return read.withColumn(WHY, F.when(is_bad, why))


def parse_value(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    bare = last.withColumn(NO_SCHEMA, why_no_schema("value", None))
    match payload.value_format:
        case PayloadFormat.BYTES:
            return bare.withColumn(PARSED, F.struct("value"))
        case PayloadFormat.STRING:
            text = F.struct(F.col("value").cast("string").alias("value"))
            return bare.withColumn(PARSED, F.when(is_text(F.col("value")), text))
        case PayloadFormat.JSON | PayloadFormat.JSON_SCHEMA | PayloadFormat.PROTOBUF:
            texts, data = with_json_text(last, payload.value, payload.on_unparsable), F.col(JSON)
            schema = json_schema(payload, columns)
            return with_json(texts, PARSED, data, schema or infer(texts, data)).drop(JSON)
        case PayloadFormat.AVRO:
            read = with_avro(last, PARSED, payload.value, payload.on_unparsable)
            if isinstance(type_of(read, PARSED), StructType):
                return read.withColumn(PARSED, F.col(f"{PARSED}.value"))
            return read  # One column, `value`.


def parse_event(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    if payload.value_format is PayloadFormat.AVRO:
        events = with_avro_event(last, payload)
    else:
        events = with_json_event(last, payload, json_schema(payload, columns))
    fields, has_value = EVENTS[payload.envelope], F.col("value").isNotNull()
    why = why_no_row(fields)
    if payload.fills:
        events = events.withColumn(UNSENT, unavailable_columns(events, payload.unavailable))
    elif payload.envelope is Envelope.DEBEZIUM:
        why = F.coalesce(why, why_unavailable(events, payload.unavailable))
    read = events.withColumn(WHY, F.when(has_value, why))
    read = read.withColumn(DELETES, ~has_value | deletes(fields))
    return read.withColumn(PARSED, F.when(F.col(WHY).isNull(), row_left(fields))).drop(EVENT)


def json_schema(payload: Payload, columns: StructType | None) -> StructType | None:
    """Returns the columns of JSON: the user's, or the table's; None if there are none yet."""
    if payload.value_schema is not None:
        return read_schema("--value-schema", payload.value_schema)
    if columns is None:
        return None
    others = {payload.key_column, UNPARSED, *ORIGIN, *ENDS_OF_VALUES}
    return StructType([field for field in columns.fields if field.name not in others])

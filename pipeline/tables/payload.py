"""Turns a record's bytes into a table's columns.

    key        bytes, text, or what JSON or Avro says, in a column that the user may name
    value      bytes or text: one column `value`; JSON or Avro records: a column for each field
    _unparsed  the bytes of a value that could not be parsed, if the user keeps such rows
    _topic, _partition, _offset, _timestamp   the origin of the row

Only the last record of a key is parsed, so superseded values may be malformed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_columns import type_of, with_avro
from pipeline.tables.json_columns import infer, is_text, read_schema, with_json
from pipeline.tables.keys import with_read_keys
from pipeline.tables.payload_options import OnUnparsable, Payload, ValueFormat
from pipeline.tables.row_refusal import only_if
from pipeline.tables.wire_columns import data_of

ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")
TOMBSTONE = "_tombstone"
"""The column that is true in a row that deletes its key; such a row never gets into a table."""
UNPARSED = "_unparsed"
PARSED = "_parsed"


def rows_of(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    """Returns the table's rows from the last records, with `_tombstone` for those that delete their key.

    Args:
        columns: the columns of the table, if it exists.

    Raises:
        TableRefused: the schema cannot be parsed or inferred, or two columns would have the same name.
    """
    parsed = parse(with_read_keys(last, payload), payload, columns)
    names = [payload.key_column, *value_columns(parsed), *kept(payload), *ORIGIN, TOMBSTONE]
    refuse_equal_names(names)
    return parsed.select(
        F.col("key").alias(payload.key_column),
        *(F.col(f"{PARSED}.`{name}`") for name in value_columns(parsed)),
        *([F.when(unreadable(), F.col("value")).alias(UNPARSED)] if kept(payload) else []),
        *(F.col(name.removeprefix("_")).alias(name) for name in ORIGIN),
        read_or_kept(payload, F.col("value").isNull()).alias(TOMBSTONE),
    )


def value_columns(parsed: DataFrame) -> list[str]:
    names: list[str] = parsed.schema[PARSED].dataType.names
    return names


def kept(payload: Payload) -> list[str]:
    return [UNPARSED] if payload.on_unparsable is OnUnparsable.KEEP else []


def refuse_equal_names(names: list[str]) -> None:
    """Raise TableRefused if two names are equal to Spark, which ignores case."""
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise TableRefused(
            f"two columns would be named {twice[0]}: rename a field of the value, "
            "or the key with --key-column"
        )


def parse(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    """Add `_parsed`, a struct of the value's columns that is null if the value cannot be parsed."""
    match payload.value_format:
        case ValueFormat.BYTES:
            return last.withColumn(PARSED, F.struct("value"))
        case ValueFormat.STRING:
            text = F.struct(F.col("value").cast("string").alias("value"))
            return last.withColumn(PARSED, F.when(is_text(F.col("value")), text))
        case ValueFormat.JSON:
            return parse_json(last, payload, columns)
        case ValueFormat.AVRO:
            return parse_avro(last, payload)


def parse_json(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    data = data_of(last, payload.value, payload.on_unparsable)
    if payload.value_schema is not None:
        schema = read_schema("--value-schema", payload.value_schema)
    elif columns is not None:
        others = {payload.key_column, UNPARSED, *ORIGIN}
        schema = StructType([field for field in columns.fields if field.name not in others])
    else:
        schema = infer(last, data)
    return with_json(last, PARSED, data, schema)


def parse_avro(last: DataFrame, payload: Payload) -> DataFrame:
    """Add `_parsed`; a value that is no record becomes one column, `value`."""
    read = with_avro(last, PARSED, payload.value, payload.on_unparsable)
    if isinstance(type_of(read, PARSED), StructType):
        return read.withColumn(PARSED, F.col(f"{PARSED}.value"))
    return read


def unreadable() -> Column:
    return F.col("value").isNotNull() & F.col(PARSED).isNull()


def read_or_kept(payload: Payload, value: Column) -> Column:
    """Returns a column of the row, or ends the job if the value cannot be read and is not to be kept."""
    if payload.on_unparsable is OnUnparsable.KEEP:
        return value
    return only_if(~unreadable(), value, f"the value is not {payload.value_format} of this schema")

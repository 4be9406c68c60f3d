"""Turns a record's bytes into a table's columns.

    key        bytes or text, in a column that the user may name
    value      bytes or text: one column `value`; JSON or Avro records: a column for each field
    _unparsed  the bytes of a value that could not be parsed, if the user keeps such rows
    _topic, _partition, _offset, _timestamp   the origin of the row

Only the last record of a key is parsed, so superseded values may be malformed.
"""

from __future__ import annotations

import json

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.avro_columns import VALUE, NoAvroSchema, by_its_writer, by_the_user, whole
from pipeline.tables.payload_options import KeyFormat, OnUnparsable, Payload, ValueFormat
from pipeline.tables.wire_columns import ids_in
from pipeline.tables.writer_schemas import schemas_for, texts_of

ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")
TOMBSTONE = "_tombstone"
"""The column that is true in a row that deletes its key; such a row never gets into a table."""
UNPARSED = "_unparsed"
PARSED = "_parsed"
CORRUPT = "_corrupt"
AVRO = "_avro"


def rows_of(last: DataFrame, payload: Payload, columns: StructType | None) -> DataFrame:
    """Returns the table's rows from the last records, with `_tombstone` for those that delete their key.

    Args:
        columns: the columns of the table, if it exists.

    Raises:
        TableRefused: the schema cannot be parsed or inferred, or two columns would have the same name.
    """
    parsed = parse(last, payload, columns)
    names = [payload.key_column, *value_columns(parsed), *kept(payload), *ORIGIN, TOMBSTONE]
    refuse_equal_names(names)
    return parsed.where(is_readable(payload)).select(
        key_of(payload).alias(payload.key_column),
        *(F.col(f"{PARSED}.`{name}`") for name in value_columns(parsed)),
        *([F.when(unreadable(), F.col("value")).alias(UNPARSED)] if kept(payload) else []),
        *(F.col(name.removeprefix("_")).alias(name) for name in ORIGIN),
        F.col("value").isNull().alias(TOMBSTONE),
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
            return last.withColumn(PARSED, F.when(is_text("value"), text))
        case ValueFormat.JSON:
            return parse_json(last, json_schema(last, payload, columns))
        case ValueFormat.AVRO:
            return parse_avro(last, payload)


def is_text(column: str) -> Column:
    return F.is_valid_utf8(F.col(column).cast("string"))


def parse_json(last: DataFrame, schema: StructType) -> DataFrame:
    """Parse JSON. Spark puts a value that does not fit into an extra column; here `_parsed` is null."""
    wanted = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    read = last.withColumn(PARSED, F.from_json(F.col("value").cast("string"), wanted, options))
    fits = is_text("value") & F.col(f"{PARSED}.{CORRUPT}").isNull() & F.col(PARSED).isNotNull()
    fields = F.struct(*(F.col(f"{PARSED}.`{name}`") for name in schema.names))
    return read.withColumn(PARSED, F.when(fits, fields))


def json_schema(last: DataFrame, payload: Payload, columns: StructType | None) -> StructType:
    if payload.value_schema is not None:
        return read_schema(payload.value_schema)
    if columns is not None:
        others = {payload.key_column, UNPARSED, *ORIGIN}
        return StructType([field for field in columns.fields if field.name not in others])
    return infer_json(last)


def read_schema(text: str) -> StructType:
    """Parse DDL (`id BIGINT, name STRING`) or Spark's JSON form. Raises TableRefused."""
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        schema = DataType.fromDDL(text)
    except (ParseException, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TableRefused(f"--value-schema cannot be read: {reason}") from error
    if not isinstance(schema, StructType):
        raise TableRefused("--value-schema must name fields, as in `id BIGINT, name STRING`")
    return schema


def infer_json(last: DataFrame) -> StructType:
    """Infer the schema from all last values. Raises TableRefused if none is a JSON object."""
    values = last.where(F.col("value").isNotNull()).select(F.col("value").cast("string"))
    found = last.sparkSession.read.json(values, columnNameOfCorruptRecord=CORRUPT).schema
    fields = [field for field in found.fields if field.name != CORRUPT]
    if not fields:
        raise TableRefused("no value is a JSON object: give --value-schema, or another format")
    return StructType(fields)


def parse_avro(last: DataFrame, payload: Payload) -> DataFrame:
    """Add `_parsed`; a value that is no record becomes one column, `value`."""
    try:
        read = last.withColumn(AVRO, avro_of(last, payload))
        inner = read.schema[AVRO].dataType[VALUE].dataType
    except (AnalysisException, Py4JJavaError) as error:
        raise TableRefused(f"--value-schema: {cause(error)}") from error
    except NoAvroSchema as error:
        raise TableRefused(f"--value-schema {error}") from error
    value = F.col(f"{AVRO}.{VALUE}")
    columns = value if isinstance(inner, StructType) else F.struct(value)
    return read.withColumn(PARSED, F.when(whole(AVRO), columns)).drop(AVRO)


def avro_of(last: DataFrame, payload: Payload) -> Column:
    """Returns the values as `whole` takes them.

    Raises:
        TableRefused: a writer's schema is not known, and the user does not keep such values.
    """
    schema = payload.value_schema or ""
    if not payload.has_header:
        return by_the_user("value", schema)
    writers = texts_of(ids_in(last, "value"), schemas_for(payload), payload.on_unparsable)
    return by_its_writer("value", schema, writers)


def unreadable() -> Column:
    return F.col("value").isNotNull() & F.col(PARSED).isNull()


def key_of(payload: Payload) -> Column:
    key = F.col("key")
    return key.cast("string") if payload.key_format is KeyFormat.STRING else key


def is_readable(payload: Payload) -> Column:
    """Returns true, or raises an error that names the first record without the expected format."""
    found = F.lit(True)
    if payload.on_unparsable is OnUnparsable.FAIL:
        says = f"the value is not {payload.value_format} of this schema"
        found = F.when(unreadable(), refusal(says)).otherwise(found)
    if payload.key_format is KeyFormat.STRING:
        found = F.when(~is_text("key"), refusal("the key is no text")).otherwise(found)
    return found


def refusal(says: str) -> Column:
    place = F.format_string("%s-%d, offset %d: ", "topic", "partition", "offset")
    return F.raise_error(F.concat(place, F.lit(says))).cast("boolean")

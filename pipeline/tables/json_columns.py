"""Reads JSON in a column."""

from __future__ import annotations

import json

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from pipeline.offsets.cut import TableRefused

CORRUPT = "_corrupt"


def is_text(data: Column) -> Column:
    """Returns whether bytes are UTF-8."""
    return F.is_valid_utf8(data.cast("string"))


def with_json(records: DataFrame, name: str, data: Column, schema: StructType) -> DataFrame:
    """Add a struct of the fields of JSON objects; null for what is none, or does not fit the schema.

    Spark puts a value that does not fit into an extra field of text.
    """
    wanted = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    read = records.withColumn(name, F.from_json(data.cast("string"), wanted, options))
    fits = is_text(data) & F.col(f"{name}.{CORRUPT}").isNull() & F.col(name).isNotNull()
    fields = F.struct(*(F.col(f"{name}.`{field}`") for field in schema.names))
    return read.withColumn(name, F.when(fits, fields))


def read_schema(option: str, text: str) -> StructType:
    """Parse DDL (`id BIGINT, name STRING`) or Spark's JSON form. Raises TableRefused."""
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        schema = DataType.fromDDL(text)
    except (ParseException, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TableRefused(f"{option} cannot be read: {reason}") from error
    if not isinstance(schema, StructType):
        raise TableRefused(f"{option} must name fields, as in `id BIGINT, name STRING`")
    return schema


def infer(records: DataFrame, data: Column) -> StructType:
    """Infer the schema from all objects. Raises TableRefused if there is none."""
    texts = records.where(data.isNotNull()).select(data.cast("string"))
    found = records.sparkSession.read.json(texts, columnNameOfCorruptRecord=CORRUPT).schema
    fields = [field for field in found.fields if field.name != CORRUPT]
    if not fields:
        raise TableRefused("no value is a JSON object: give --value-schema, or another format")
    return StructType(fields)

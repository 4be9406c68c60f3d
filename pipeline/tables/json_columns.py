"""Reads JSON in a column.

`from_json` says nothing of what follows an object: of `{"id": 7} {"id": 8}` it reads the first one. So a
value is read as the first field of an object, and whether it was whole is seen by the second:

    {"value": the value, "end": 1}

A value that does not fit is put into a field of its own, CORRUPT.
"""

from __future__ import annotations

import json
import os
from operator import itemgetter
from typing import Any

import pyspark
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding, OnUnparsable, PayloadFormat
from pipeline.tables.protobuf_columns import json_of
from pipeline.tables.wire_columns import NO_SCHEMA, body, names_schema, why_no_schema, writers_of

CORRUPT = "_corrupt"
_MARK = os.urandom(8).hex()
VALUE, END = f"value_{_MARK}", f"end_{_MARK}"
"""Names that no value has."""

JSON = "_json"
"""The column of JSON: that of keys or values, that of a registry, and what Protobuf becomes."""


def is_text(data: Column) -> Column:
    """Returns whether bytes are UTF-8."""
    return F.is_valid_utf8(data.cast("string"))


def with_json(records: DataFrame, name: str, data: Column, schema: StructType) -> DataFrame:
    """Add a struct of the fields of JSON objects; null for what is none, or does not fit the schema."""
    inner = StructType([StructField(VALUE, schema), StructField(END, IntegerType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = F.concat(F.lit(f'{{"{VALUE}":'), data.cast("string"), F.lit(f',"{END}":1}}'))
    read = records.withColumn(name, F.from_json(text, inner.add(CORRUPT, StringType()), options))
    is_whole = F.col(f"{name}.{CORRUPT}").isNull() & (F.col(f"{name}.{END}") == 1)
    return read.withColumn(name, F.when(is_text(data) & is_whole, F.col(f"{name}.{VALUE}")))


def has_no_other_fields(data: Column, schema: StructType) -> Column:
    """Returns whether an object, and each within it, has only fields of the schema.

    Null if it is no object.
    """
    text = data.cast("string")
    names = F.array(*(F.lit(name) for name in schema.names))
    found = F.size(F.array_except(F.json_object_keys(text), names)) == 0
    for field in schema.fields:
        if isinstance(field.dataType, StructType):
            inner = F.get_json_object(text, f"$['{field.name}']")
            is_fine = has_no_other_fields(inner, field.dataType)
            found = found & F.coalesce(is_fine, F.lit(True))
    return found


def is_within_schema(data: Column) -> Column:
    """Returns whether JSON is {"schema": ..., "payload": ...}, as Connect's converter writes it."""
    names = F.array_sort(F.json_object_keys(data.cast("string")))
    return F.coalesce(names == F.array(F.lit("payload"), F.lit("schema")), F.lit(False))


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
    # PySpark 4.1 does not read a DataFrame, and in Python an RDD is slower.
    lines: Any = texts.rdd.map(itemgetter(0)) if pyspark.__version__ < "4.2" else texts
    found = records.sparkSession.read.json(lines, columnNameOfCorruptRecord=CORRUPT).schema
    fields = [field for field in found.fields if field.name != CORRUPT]
    if not fields:
        raise TableRefused("no value is a JSON object: give --value-schema, or another format")
    return StructType(fields)


def with_json_text(
    records: DataFrame, encoding: Encoding, on_unparsable: OnUnparsable
) -> DataFrame:
    """Add `_json`, the bytes or the text; null for what has no known schema, or is none of it.

    `NO_SCHEMA` says why the schema of one is not known.

    Raises:
        TableRefused: as `writers_of`.
    """
    writers = writers_of(records, encoding, on_unparsable) if encoding.has_header else None
    if writers is None:
        found = F.col(encoding.part)
    elif encoding.format is PayloadFormat.PROTOBUF:
        found = json_of(encoding.part, writers.texts, encoding.message)
    else:
        found = F.lit(None).cast("binary")
        for number in writers.texts:
            found = F.when(names_schema(encoding.part, number), body(encoding.part)).otherwise(
                found
            )
    why = why_no_schema(encoding.part, writers)
    return records.withColumn(NO_SCHEMA, why).withColumn(JSON, found)

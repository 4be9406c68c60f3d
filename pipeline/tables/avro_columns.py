"""Reads Avro in a column, by the schema of the user or by that of each record's writer.

`from_avro` neither says why it returns null nor notices bytes that are left over: a record of three
fields, read with a schema of the first two, would lose the third without a word. So each value is read
as the first field of a record, with random bytes appended as the second one:

    bytes of the column | END      read as  {"value": the user's schema, "end": 16 bytes}

Only if `end` is what was appended were all bytes of the value read, and not more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.payload_options import Encoding, OnUnparsable
from pipeline.tables.wire_columns import NO_SCHEMA, body, names_schema, why_no_schema, writers_of

END = os.urandom(16)
READ = "_avro"


class NoAvroSchema(Exception):
    """A text is no Avro schema. The text is a clause that says why."""


def with_avro(
    records: DataFrame,
    name: str,
    encoding: Encoding,
    on_unparsable: OnUnparsable,
    *,
    reader: str | None = None,
) -> DataFrame:
    """Add a struct whose one field `value` is what the encoded column says; null if it says nothing.

    `NO_SCHEMA` says why the schema of one is not known.

    Args:
        reader: the schema of what comes out; None: that of the encoding.

    Raises:
        TableRefused: the schema cannot be used; or a writer's is not known, and the job is to end then.
    """
    option, schema = f"--{encoding.part}-schema", encoding.schema or ""
    writers = None
    if encoding.has_header:
        writers = writers_of(records, encoding, on_unparsable, reader)
    why = why_no_schema(encoding.part, writers)
    try:
        if writers is None:
            read = read_as(F.col(encoding.part), schema, reader or schema)
        else:
            read = by_its_writer(encoding.part, reader or schema, writers.texts)
        result = records.withColumn(NO_SCHEMA, why).withColumn(READ, read)
        is_whole = F.coalesce(F.col(f"{READ}.end") == F.lit(END), F.lit(False))
        found = F.when(is_whole, F.struct(F.col(f"{READ}.value").alias("value")))
        return result.withColumn(name, found).drop(READ)
    except (AnalysisException, Py4JJavaError) as error:
        raise TableRefused(f"{option}: {cause(error)}") from error
    except NoAvroSchema as error:
        raise TableRefused(f"{option} {error}") from error


def type_of(records: DataFrame, name: str) -> DataType:
    """Returns the type of the `value` in a column that `with_avro` has added."""
    return records.schema[name].dataType["value"].dataType


def by_its_writer(column: str, reader: str, writers: Mapping[int, str]) -> Column:
    """Returns value and end of a column with headers; null if the writer's schema is none of these.

    Args:
        reader: the schema of what comes out.
        writers: the schemas by their ids.

    Raises:
        NoAvroSchema: one of them.
    """
    read = F.when(F.lit(False), read_as(body(column), reader, reader))
    for number, text in sorted(writers.items()):
        read = read.when(names_schema(column, number), read_as(body(column), text, reader))
    return read


def read_as(data: Column, writer: str, reader: str) -> Column:
    """Returns value and end of bytes, read by their writer's schema as another. Raises NoAvroSchema."""
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE", "avroSchema": around(reader)}
    return from_avro(with_end(data), around(writer), options)


def with_end(data: Column) -> Column:
    return F.concat(data, F.lit(END))


def around(schema: str) -> str:
    """Returns the schema of a record with the value and the end. Raises NoAvroSchema."""
    try:
        content = json.loads(schema)
    except ValueError as error:
        raise NoAvroSchema(f"is no Avro schema: {error}") from error
    end = {"type": "fixed", "name": "KompaktEnd", "size": len(END)}
    fields = [{"name": "value", "type": content}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "KompaktPayload", "fields": fields})

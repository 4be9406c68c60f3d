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

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.tables.wire_columns import body, schema_id

END = os.urandom(16)
VALUE, END_FIELD = "value", "end"


class NoAvroSchema(Exception):
    """A text is no Avro schema. The text is a clause that says why."""


def by_the_user(column: str, schema: str) -> Column:
    """Returns what `whole` takes, for a column without headers. Raises NoAvroSchema."""
    from pyspark.sql.avro.functions import from_avro

    return from_avro(with_end(F.col(column)), around(schema), {"mode": "PERMISSIVE"})


def by_its_writer(column: str, schema: str, writers: Mapping[int, str]) -> Column:
    """Returns what `whole` takes, for a column with headers; of other writers it is null.

    Args:
        schema: the reader's, which says what comes out.
        writers: the schemas by their ids.

    Raises:
        NoAvroSchema: one is none.
    """
    from pyspark.sql.avro.functions import from_avro

    reader, data = around(schema), with_end(body(column))
    options = {"mode": "PERMISSIVE", "avroSchema": reader}
    read = F.when(F.lit(False), from_avro(data, reader, options))
    for number, text in sorted(writers.items()):
        read = read.when(schema_id(column) == number, from_avro(data, around(text), options))
    return read


def whole(read: str) -> Column:
    """Returns whether all bytes of a record were read, and no more, from a column with the result."""
    return F.coalesce(F.col(f"{read}.{END_FIELD}") == F.lit(END), F.lit(False))


def with_end(data: Column) -> Column:
    return F.concat(data, F.lit(END))


def around(schema: str) -> str:
    """Returns the schema of a record with the value and the end. Raises NoAvroSchema."""
    try:
        content = json.loads(schema)
    except ValueError as error:
        raise NoAvroSchema(f"is no Avro schema: {error}") from error
    end = {"type": "fixed", "name": "KompaktEnd", "size": len(END)}
    fields = [{"name": VALUE, "type": content}, {"name": END_FIELD, "type": end}]
    return json.dumps({"type": "record", "name": "KompaktPayload", "fields": fields})

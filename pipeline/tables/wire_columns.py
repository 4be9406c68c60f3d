"""The header of Confluent's serializers in a column (`schemas/wire_header.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.tables.payload_options import Encoding, OnUnparsable
from pipeline.tables.writer_schemas import SeenId, schemas_for, texts_of
from schemas.wire_header import HEADER_BYTES, MAGIC

SCHEMA_ID = "_schema_id"


def writers_of(
    records: DataFrame, encoding: Encoding, on_unparsable: OnUnparsable
) -> Mapping[int, str]:
    """Returns the schemas of all writers, by their ids. Reads all records.

    Raises:
        TableRefused: one cannot be had, and the job is to end then; nothing was written.
    """
    return texts_of(ids_in(records, encoding.part), schemas_for(encoding), on_unparsable)


def ids_in(records: DataFrame, column: str) -> list[SeenId]:
    """Returns the ids that a column names, each with the first record."""
    first = F.min(F.struct("topic", "partition", "offset")).alias("first")
    named = records.where(has_header(column))
    rows = named.groupBy(schema_id(column).alias(SCHEMA_ID)).agg(first).collect()
    return [SeenId(part=column, schema_id=row[SCHEMA_ID], **row["first"].asDict()) for row in rows]


def has_header(column: str) -> Column:
    """Returns whether a value begins with the magic byte 0, an id, and something behind it."""
    begins = F.substring(column, 1, 1) == F.lit(bytes([MAGIC]))
    return begins & (F.length(column) > HEADER_BYTES)


def schema_id(column: str) -> Column:
    """Returns the id of a value's schema; null if it has no header."""
    number = F.conv(F.hex(F.expr(f"substring(`{column}`, 2, 4)")), 16, 10).cast("bigint")
    return F.when(has_header(column), number)


def body(column: str) -> Column:
    """Returns a value without its header; null if the header is missing."""
    return F.when(has_header(column), F.expr(f"substring(`{column}`, {HEADER_BYTES + 1})"))

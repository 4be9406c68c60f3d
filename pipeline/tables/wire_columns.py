"""The header of Confluent's serializers in a column (`schemas/wire_header.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Encoding, OnUnparsable, PayloadFormat
from pipeline.tables.writer_schemas import (
    SeenId,
    Writers,
    schemas_for,
    why_unreadable,
    writers_by_id,
)
from schemas.avro_schema import field_paths
from schemas.outcomes import UnsupportedSchema
from schemas.wire_header import HEADER_BYTES, MAGIC

SCHEMA_ID = "_schema_id"
NO_SCHEMA = "_no_schema"
"""The column that says why a value's schema is not known; null if it is, or if values name none."""


def writers_of(
    records: DataFrame,
    encoding: Encoding,
    on_unparsable: OnUnparsable,
    reader: str | None = None,
) -> Writers:
    """Returns the schemas of all writers. Reads all records.

    Args:
        reader: the schema in Avro by which they are read; None: that of the encoding.

    Raises:
        TableRefused: one is not available, and the job is to end then; or a writer's key has a field
            that the reader's schema lacks. Nothing was written.
    """
    seen = ids_in(records, encoding.part)
    writers = writers_by_id(seen, schemas_for(encoding), on_unparsable)
    needed = reader or encoding.schema or ""
    if encoding.format is not PayloadFormat.AVRO:
        return writers
    if encoding.part == "value":
        return replace(writers, gaps=gaps_of(writers, needed))
    refuse_wider_keys(seen, writers, needed)
    return writers


def gaps_of(writers: Writers, reader: str) -> dict[int, str]:
    """Returns what the writers' schemas of values lack that the reader's needs, as clauses by their
    ids."""
    texts = writers.texts.items()
    found = {number: why_unreadable(text, reader, "value") for number, text in texts}
    return {number: why for number, why in found.items() if why is not None}


def refuse_wider_keys(seen: Sequence[SeenId], writers: Writers, reader: str) -> None:
    """Raise TableRefused if keys that differ would be read as equal ones."""
    try:
        known = field_paths(reader, with_aliases=True)
        paths = {number: field_paths(text) for number, text in writers.texts.items()}
    except UnsupportedSchema as error:
        raise TableRefused(f"--key-schema, or a schema that keys name: {error}") from error
    for each in seen:
        more = sorted(paths[each.schema_id] - known)
        if more:
            raise TableRefused(
                f"{each}: it has the field {more[0]}, which --key-schema lacks: keys that differ in it"
                " would become one row"
            )


def why_no_schema(column: str, writers: Writers | None) -> Column:
    """Returns why a value cannot be read by its schema, as a clause; null if it can, or is damaged.

    Args:
        writers: None if values name no schema.
    """
    if writers is None:
        return F.lit(None).cast("string")
    found = F.when(~has_header(column), f"the {column} does not name a schema")
    for number, reason in {**writers.refusals, **writers.gaps}.items():
        says = f"the {column} has the schema with id {number}: {reason}"
        found = found.when(names_schema(column, number), says)
    return found


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


def names_schema(column: str, number: int) -> Column:
    """Returns whether a value's schema has this id."""
    header = bytes([MAGIC]) + number.to_bytes(4)
    return has_header(column) & (F.substring(column, 1, HEADER_BYTES) == F.lit(header))


def body(column: str) -> Column:
    """Returns a value without its header; null if the header is missing."""
    return F.when(has_header(column), F.expr(f"substring(`{column}`, {HEADER_BYTES + 1})"))

"""The JSON of keys or values that are JSON, or become JSON: that of a registry, and Protobuf."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.tables.payload_options import Encoding, OnUnparsable, PayloadFormat
from pipeline.tables.protobuf_columns import json_of
from pipeline.tables.wire_columns import NO_SCHEMA, body, names_schema, why_no_schema, writers_of

JSON = "_json"


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

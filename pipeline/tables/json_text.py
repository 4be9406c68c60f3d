"""The JSON of keys or values that are JSON, or become JSON: that of a registry, and Protobuf."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.tables.payload_options import Encoding, OnUnparsable
from pipeline.tables.protobuf_columns import json_of
from pipeline.tables.wire_columns import body, schema_id, writers_of

JSON = "_json"


def with_json_text(
    records: DataFrame, encoding: Encoding, on_unparsable: OnUnparsable
) -> DataFrame:
    """Add `_json`, the bytes or the text; null for what has no known schema, or is none of it.

    Raises:
        TableRefused: as `writers_of`.
    """
    return records.withColumn(JSON, _json(records, encoding, on_unparsable))


def _json(records: DataFrame, encoding: Encoding, on_unparsable: OnUnparsable) -> Column:
    if not encoding.has_header:
        return F.col(encoding.part)
    writers = writers_of(records, encoding, on_unparsable)
    if encoding.format == "protobuf":
        return json_of(encoding.part, writers, encoding.message)
    return F.when(schema_id(encoding.part).isin(list(writers)), body(encoding.part))

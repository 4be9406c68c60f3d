"""Turns a record's key into the key of a table's row.

A key in JSON or Avro is what it says, and not its bytes: two writers may encode one key in two ways,
above all with two versions of a schema. So of the last records by bytes, those with equal keys are
reduced once more.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_columns import with_avro
from pipeline.tables.json_columns import is_text, read_schema, with_json
from pipeline.tables.latest import latest
from pipeline.tables.payload_options import KeyFormat, OnMissingKey, OnUnparsable, Payload
from pipeline.tables.row_refusal import only_if
from pipeline.tables.wire_columns import data_of

READ = "_read"


def having_keys(records: DataFrame, payload: Payload) -> DataFrame:
    """Returns the records that have a key. Others end the job, unless the user lets it skip them."""
    key = F.col("key")
    if payload.on_missing_key is OnMissingKey.SKIP:
        return records.where(key.isNotNull())
    says = "the record has no key: --on-missing-key skip leaves such records out"
    return records.withColumn("key", only_if(key.isNotNull(), key, says))


def with_read_keys(last: DataFrame, payload: Payload) -> DataFrame:
    """Read the keys of the last records by key; records whose keys are equal then become one.

    A key that cannot be read ends the job.

    Raises:
        TableRefused: the schema cannot be used, or that of a key's writer is not known.
    """
    key = F.col("key")
    if payload.key_format is KeyFormat.BYTES:
        return last
    if payload.key_format is KeyFormat.STRING:
        return last.withColumn(
            "key", only_if(is_text(key), key.cast("string"), "the key is no text")
        )
    read = read_by_schema(last, payload)
    refuse_maps(read.schema[READ].dataType)
    says = f"the key is not {payload.key_format} of this schema"
    found = only_if(F.col(READ).isNotNull(), F.col(READ), says)
    return latest(read.withColumn("key", found).drop(READ))


def read_by_schema(last: DataFrame, payload: Payload) -> DataFrame:
    """Add what keys in JSON or Avro say; null if one cannot be read."""
    if payload.key_format is KeyFormat.AVRO:
        read = with_avro(last, READ, payload.key, OnUnparsable.FAIL)
        return read.withColumn(READ, F.col(f"{READ}.value"))
    schema = read_schema("--key-schema", payload.key_schema or "")
    return with_json(last, READ, data_of(last, payload.key, OnUnparsable.FAIL), schema)


def refuse_maps(kind: DataType) -> None:
    """Raise TableRefused if a key has a map, because maps cannot be compared."""
    if isinstance(kind, MapType):
        raise TableRefused("--key-schema has a map, and maps cannot be compared")
    if isinstance(kind, StructType):
        for field in kind.fields:
            refuse_maps(field.dataType)
    if isinstance(kind, ArrayType):
        refuse_maps(kind.elementType)

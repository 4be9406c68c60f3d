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
from pipeline.tables.json_text import JSON, with_json_text
from pipeline.tables.latest import RAW_KEY, latest
from pipeline.tables.payload_options import Envelope, KeyFormat, OnMissingKey, OnUnparsable, Payload
from pipeline.tables.row_refusal import only_if

READ = "_read"


def having_keys(records: DataFrame, payload: Payload) -> DataFrame:
    """Returns the records that have a key. Others end the job, unless the user lets it skip them."""
    key = F.col("key")
    if payload.on_missing_key is OnMissingKey.SKIP:
        return records.where(key.isNotNull())
    says = "the record has no key: --on-missing-key skip leaves such records out"
    if payload.envelope is Envelope.DEBEZIUM:
        says = (
            "the record has no key, like Debezium's of a TRUNCATE: let the connector skip those with"
            " skipped.operations=t, and write the table again with `batch`; or leave such records out"
            " with --on-missing-key skip"
        )
    return records.withColumn("key", only_if(key.isNotNull(), key, says))


def with_read_keys(last: DataFrame, payload: Payload) -> DataFrame:
    """Read the keys of the last records by key; records whose keys are equal then become one.

    Their bytes stay in `RAW_KEY`. A key that cannot be read ends the job.

    Raises:
        TableRefused: the schema cannot be used, or that of a key's writer is not known.
    """
    key = F.col("key")
    last = last.withColumn(RAW_KEY, key)
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
    """Add what keys in Avro, JSON or Protobuf say; null if one cannot be read."""
    if payload.key_format is KeyFormat.AVRO:
        read = with_avro(last, READ, payload.key, OnUnparsable.FAIL)
        return read.withColumn(READ, F.col(f"{READ}.value"))
    schema = read_schema("--key-schema", payload.key_schema or "")
    texts = with_json_text(last, payload.key, OnUnparsable.FAIL)
    return with_json(texts, READ, F.col(JSON), schema).drop(JSON)


def refuse_maps(kind: DataType) -> None:
    """Raise TableRefused if a key has a map, because maps cannot be compared."""
    if isinstance(kind, MapType):
        raise TableRefused("--key-schema has a map, and maps cannot be compared")
    if isinstance(kind, StructType):
        for field in kind.fields:
            refuse_maps(field.dataType)
    if isinstance(kind, ArrayType):
        refuse_maps(kind.elementType)

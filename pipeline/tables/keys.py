"""Turns a record's key into the key of a table's row.

A key in JSON or Avro is what it says, and not its bytes: two writers may encode one key in two ways,
above all with two versions of a schema. So of the last records by bytes, those with equal keys are
reduced once more. Keys that differ must not become equal: one with a field that the schema lacks ends
the job.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pipeline.offsets.cut import TableRefused
from pipeline.tables.avro_columns import with_avro
from pipeline.tables.events.table_records import records_of_table
from pipeline.tables.json_columns import (
    JSON,
    has_no_other_fields,
    is_text,
    is_within_schema,
    read_schema,
    with_json,
    with_json_text,
)
from pipeline.tables.latest import RAW_KEY, becoming_rows
from pipeline.tables.payload_options import (
    Envelope,
    OnMissingKey,
    OnUnparsable,
    Payload,
    PayloadFormat,
)
from pipeline.tables.row_refusal import only_if
from pipeline.tables.wire_columns import NO_SCHEMA

READ, MISFIT, WRAPPED = "_read", "_misfit", "_wrapped"
PAYLOAD = "payload"
"""The field of a key that Connect's converter has put beside its schema."""


def having_keys(records: DataFrame, payload: Payload) -> DataFrame:
    """Returns the records that have a key, and are of the user's table of the database, if one is named.

    A record without a key ends the job, unless the user lets it skip such records.
    """
    found = with_keys(records, payload)
    return found if payload.source_table is None else records_of_table(found, payload.source_table)


def with_keys(records: DataFrame, payload: Payload) -> DataFrame:
    key = F.col("key")
    if payload.on_missing_key is OnMissingKey.SKIP:
        return records.where(key.isNotNull())
    says = "the record has no key: --on-missing-key skip leaves such records out"
    if payload.envelope is Envelope.DEBEZIUM:
        says = (
            "the record has no key: its table has no primary key (message.key.columns names another), or"
            " Debezium wrote it for a TRUNCATE (skipped.operations=t leaves those out, and"
            " --on-truncate apply deletes the rows); --on-missing-key skip leaves other such records out"
        )
    return records.withColumn("key", only_if(key.isNotNull(), key, says))


def with_read_keys(last: DataFrame, payload: Payload) -> DataFrame:
    """Read the keys of the records that become rows; of those with equal keys then the last one stays,
    except in a history.

    Their bytes stay in `RAW_KEY`. A key that cannot be read ends the job.

    Raises:
        TableRefused: the schema cannot be used, or that of a key's writer is not known.
    """
    key = F.col("key")
    last = last.withColumn(RAW_KEY, key)
    if payload.key_format is PayloadFormat.BYTES:
        return last
    if payload.key_format is PayloadFormat.STRING:
        return last.withColumn(
            "key", only_if(is_text(key), key.cast("string"), "the key is no text")
        )
    read = read_by_schema(last, payload)
    refuse_maps(read.schema[READ].dataType)
    says = F.coalesce(F.col(MISFIT), F.lit(payload.key.misfit))
    found = only_if(F.col(READ).isNotNull() & F.col(MISFIT).isNull(), F.col(READ), says)
    return becoming_rows(read.withColumn("key", found), all_of_a_key=payload.reads_all_of_a_key)


def read_by_schema(last: DataFrame, payload: Payload) -> DataFrame:
    """Add what keys say that are records, null if one cannot be read, and why one does not fit."""
    if payload.key_format is PayloadFormat.AVRO:
        read = with_avro(last, READ, payload.key, OnUnparsable.FAIL)
        why = F.col(NO_SCHEMA)
        return read.withColumn(READ, F.col(f"{READ}.value")).withColumn(MISFIT, why)
    schema = read_schema("--key-schema", payload.key_schema or "")
    if PAYLOAD in (name.lower() for name in schema.names):
        raise TableRefused(
            "--key-schema has a field `payload`, which Connect's keys have around them"
        )
    data, is_wrapped = F.col(JSON), F.col(WRAPPED)
    # A column of its own, because each use would parse the key again.
    texts = with_json_text(last, payload.key, OnUnparsable.FAIL).withColumn(
        WRAPPED, is_within_schema(data)
    )
    payload_text = F.get_json_object(data.cast("string"), "$.payload")
    bare = F.when(is_wrapped, payload_text).otherwise(data.cast("string"))
    is_wider = ~has_no_other_fields(bare, schema)
    says = (
        "the key has a field that --key-schema lacks: keys that differ in it would become one row"
    )
    misfit = F.when(is_wider & is_text(data), says).otherwise(F.col(NO_SCHEMA))
    wanted = StructType([*schema.fields, StructField(PAYLOAD, schema)])
    wrapped = F.when(is_wrapped, F.col(f"{READ}.{PAYLOAD}"))
    fields = F.struct(*(F.col(f"{READ}.`{name}`") for name in schema.names))
    plain = F.when(F.col(READ).isNotNull() & ~is_wrapped, fields)
    read = with_json(texts, READ, data, wanted)
    return read.withColumn(READ, F.coalesce(wrapped, plain)).withColumn(MISFIT, misfit)


def refuse_maps(kind: DataType) -> None:
    """Raise TableRefused if a key has a map, because maps cannot be compared."""
    if isinstance(kind, MapType):
        raise TableRefused("--key-schema has a map, and maps cannot be compared")
    if isinstance(kind, StructType):
        for field in kind.fields:
            refuse_maps(field.dataType)
    if isinstance(kind, ArrayType):
        refuse_maps(kind.elementType)

"""What tables cost beside PySpark written by hand for the same job (`pipeline/tables/`).

    columns       a million last records become rows; by hand: one `from_json` or `from_avro`, which
                  takes a value of another schema, or of more bytes, for something else
    micro-batch   a thousand records are merged into a Delta table of 100,000 keys; by hand: the same
                  MERGE of the same rows, without offsets

Records are read from Parquet files, and rows are dropped (`noop`), in one session (local[2]), in turn.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from bench.base.figure import Figure, interleaved
from pipeline.offsets.cut import Cut
from pipeline.spark.jars import AVRO, CONNECTOR, DELTA
from pipeline.spark.session import LOCAL, start_session
from pipeline.tables.formats.delta_table import DeltaTable
from pipeline.tables.formats.live_rows import live_rows
from pipeline.tables.job import bring_in
from pipeline.tables.json_columns import read_schema, with_json
from pipeline.tables.payload import rows_of
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from pipeline.tables.protobuf_columns import json_of
from schemas.protobuf_values import compiled
from schemas.schema import Schema, SchemaType

RECORDS = int(os.environ.get("KOMPAKT_BENCH_RECORDS", "1000000"))
KEYS, MICRO_BATCH = 100_000, 1_000
DDL = "id BIGINT, note STRING, price DOUBLE"
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "note", "type": ["null", "string"]},
            {"name": "price", "type": ["null", "double"]},
        ],
    }
)
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; double price = 3; }'
HEADER = b"\0\0\0\0\1"


def table_value_figures(pairs: int) -> list[Figure]:
    """Measure rows per second by format, and micro-batches."""
    session = start_session("bench", LOCAL, pins=(CONNECTOR, DELTA, AVRO))
    try:
        with tempfile.TemporaryDirectory() as folder:
            return [
                *column_figures(session, Path(folder), pairs),
                micro_batch_figure(session, Path(folder), pairs),
            ]
    finally:
        session.stop()


def column_figures(session: SparkSession, folder: Path, pairs: int) -> Iterator[Figure]:
    for name, (value, payload, by_hand) in cases().items():
        path = str(folder / name.replace(" ", "-"))
        last_records(session, RECORDS, value).write.parquet(path)
        last = session.read.parquet(path)
        ours = live_rows(rows_of(last, payload, None))
        theirs = last.select("key", by_hand.alias("row")).select("key", "row.*")
        yield beside(name, ours, theirs, pairs)
        if name == "avro with ids":
            messages = str(folder / "protobuf")
            last_records(session, RECORDS, protobuf_value()).write.parquet(messages)
            yield beside("protobuf", protobuf_rows(session.read.parquet(messages)), theirs, pairs,
                         note="by hand: Avro")  # fmt: skip


def cases() -> dict[str, tuple[Column, Payload, Column]]:
    """Returns values, our options, and the columns by hand, by name."""
    text, avro = F.to_json(order()), to_avro(order(), AVRO_SCHEMA)
    event = F.to_json(F.struct(order().alias("after"), F.lit("c").alias("op")))
    as_json = Payload(value_format=PayloadFormat.JSON, value_schema=DDL)
    as_avro = Payload(value_format=PayloadFormat.AVRO, value_schema=AVRO_SCHEMA)
    with_ids = Payload(value_format=PayloadFormat.AVRO, value_schema=AVRO_SCHEMA, schema_ids=(1,))
    keyed = Payload(
        value_format=PayloadFormat.JSON,
        value_schema=DDL,
        key_format=PayloadFormat.JSON,
        key_schema="id BIGINT",
    )
    events = Payload(value_format=PayloadFormat.JSON, value_schema=DDL, envelope=Envelope.DEBEZIUM)
    parsed = F.from_json(F.col("value").cast("string"), DDL)
    after = F.from_json(F.col("value").cast("string"), f"after STRUCT<{struct_of(DDL)}>, op STRING")
    return {
        "json": (text, as_json, parsed),
        "json with json keys": (text, keyed, parsed),
        "debezium in json": (event, events, after["after"]),
        "avro": (avro, as_avro, from_avro("value", AVRO_SCHEMA)),
        "avro with ids": (
            F.concat(F.lit(HEADER), avro),
            with_ids,
            from_avro(F.expr("substring(value, 6)"), AVRO_SCHEMA),
        ),
    }


def struct_of(ddl: str) -> str:
    return ", ".join(": ".join(each.strip().split(" ")) for each in ddl.split(","))


def order() -> Column:
    note = F.concat(F.lit("order "), F.col("id").cast("string"), F.lit(" of a customer"))
    return F.struct("id", note.alias("note"), (F.col("id") * 0.01).alias("price"))


def last_records(session: SparkSession, count: int, value: Column) -> DataFrame:
    """Returns the last records of as many keys, as `latest` does."""
    return session.range(count).select(
        F.lit("orders").alias("topic"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_seconds(F.lit(1_700_000_000)).alias("timestamp"),
        F.to_json(F.struct("id")).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )


def protobuf_value() -> Column:
    """Returns messages. Only their numbers differ in length: a varint, and a fixed double."""
    note = F.expr("encode(concat('order ', id, ' of a customer'), 'utf-8')")
    fields = [
        varint_field(F.col("id")),
        F.lit(b"\x12"),
        F.unhex(F.lpad(F.hex(F.length(note)), 2, "0")),
    ]
    return F.concat(F.lit(HEADER + b"\0"), *fields, note, F.lit(b"\x19" + bytes(7) + b"\x40"))


def varint_field(number: Column) -> Column:
    """Returns field 1 with a number below 2^21, in three bytes."""
    parts = [
        number.bitwiseAND(0x7F).bitwiseOR(0x80),
        F.shiftright(number, 7).bitwiseAND(0x7F).bitwiseOR(0x80),
        F.shiftright(number, 14).bitwiseAND(0x7F),
    ]
    return F.concat(F.lit(b"\x08"), *(F.unhex(F.lpad(F.hex(each), 2, "0")) for each in parts))


def protobuf_rows(last: DataFrame) -> DataFrame:
    files = compiled(Schema(id=1, type=SchemaType.PROTOBUF, text=PROTO))
    text = json_of("value", {1: b64encode(files).decode()}, "Order")
    schema = read_schema("--value-schema", DDL)
    read = with_json(last.withColumn("text", text), "row", F.col("text"), schema)
    return read.select("key", "row.*")


def beside(name: str, ours: DataFrame, theirs: DataFrame, pairs: int, note: str = "") -> Figure:
    for frame in (ours, theirs):
        rate(frame)
    return interleaved(
        f"{name}: last records become rows",
        "records/s",
        partial(rate, ours),
        partial(rate, theirs),
        limit_is="PySpark by hand, which checks nothing",
        pairs=pairs,
        note=note,
    )


def rate(frame: DataFrame) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return RECORDS / (time.perf_counter() - started)


def micro_batch_figure(session: SparkSession, folder: Path, pairs: int) -> Figure:
    payload = Payload(value_format=PayloadFormat.JSON, value_schema=DDL)
    whole = last_records(session, KEYS, F.to_json(order()))
    tables = [DeltaTable(session, str(folder / name)) for name in ("ours", "theirs")]
    for table in tables:
        table.replace(
            rows_of(whole, payload, None), Cut({"orders": dict.fromkeys(range(4), 0)}, {})
        )
    offset = iter(range(KEYS, 1 << 40, MICRO_BATCH))

    def batch() -> DataFrame:
        moved = last_records(session, MICRO_BATCH, F.to_json(order()))
        return moved.withColumn("offset", F.col("offset") + next(offset)).localCheckpoint()

    def merge_by_hand(frame: DataFrame) -> None:
        rows_of(frame, payload, None).createOrReplaceTempView("by_hand")
        session.sql(
            f"MERGE INTO {tables[1].name} AS t USING by_hand AS s"
            " ON t._topic = s._topic AND t._partition = s._partition AND t.key = s.key"
            " WHEN MATCHED AND s._tombstone THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET t.id = s.id, t.note = s.note, t.price = s.price"
        )

    def ours(frame: DataFrame) -> None:
        bring_in(frame, tables[0], payload, Cut({}, {}))

    def seconds(work: Callable[[DataFrame], None]) -> float:
        frame = batch()
        started = time.perf_counter()
        work(frame)
        return time.perf_counter() - started

    for work in (ours, merge_by_hand):
        seconds(work)
    return interleaved(
        "a micro-batch of 1,000 records into a Delta table of 100,000 keys",
        "s",
        partial(seconds, ours),
        partial(seconds, merge_by_hand),
        limit_is="the same MERGE by hand (less is better)",
        pairs=pairs,
    )

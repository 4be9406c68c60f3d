"""Tables of a topic's last values, and loads, beside Spark with the same rows and no topic.

    delta, parquet   a topic of a million keys becomes a table (`pipeline table batch`); beside Spark,
                     which reads the same rows from Parquet and writes them in that format
    iceberg          the same by `kompakt export`, in a process of its own, with its start; beside
                     pyarrow, which reads these rows from Parquet and writes them there, in one thread
    load             a table of new rows becomes a topic (`pipeline load`); beside Spark's own Kafka
                     sink, which compares nothing and may write rows twice
    load, unchanged  the same again: everything is read and compared, nothing is written

One session (local[2]) measures all, in turn; values are JSON of three columns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.base.figure import Figure, interleaved
from bench.base.processes import broker_command, free_port, running
from bench.pipeline.exports import DDL, PARTITIONS, TOPIC, produce, rewrite_rate
from pipeline.load.job import Load, planned, write
from pipeline.load.records import RecordShape
from pipeline.load.topic import end_earlier_loads
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.spark.jars import CONNECTOR, DELTA
from pipeline.spark.session import LOCAL, start_session
from pipeline.tables.formats.delta_table import DeltaTable
from pipeline.tables.formats.parquet_table import ParquetTable
from pipeline.tables.job import write_whole
from pipeline.tables.payload_options import Payload, PayloadFormat

KEYS = int(os.environ.get("KOMPAKT_BENCH_RECORDS", "1000000"))
PAYLOAD = Payload(value_format=PayloadFormat.JSON, value_schema=DDL)
VALUES = ["--value-format", "json", "--value-schema", DDL]
COMPACTED = {"cleanup.policy": "compact"}
ROWS = "rows/current"
"""The folder of the rows that all others read; `rewrite_rate` looks for that name."""
_numbers = count()


def table_kind_figures(pairs: int) -> list[Figure]:
    """Measure rows per second of each kind of table, and of loads."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        with running(broker_command(port, folder / "data"), port):
            bootstrap = f"127.0.0.1:{port}"
            create(bootstrap, TOPIC)
            produce(bootstrap, range(KEYS))
            session = start_session("bench", LOCAL, pins=(CONNECTOR, DELTA))
            try:
                return [
                    *table_figures(session, bootstrap, folder, pairs),
                    *load_figures(session, bootstrap, folder, pairs),
                ]
            finally:
                session.stop()


def table_figures(
    session: SparkSession, bootstrap: str, folder: Path, pairs: int
) -> Iterator[Figure]:
    rows_of_a_table(session, bootstrap, "parquet", folder)  # warms up
    made = session.read.parquet(str(folder / "parquet" / "current"))
    made.write.parquet(str(folder / ROWS))
    rows = session.read.parquet(str(folder / ROWS))
    for kind in ("delta", "parquet"):
        yield interleaved(
            f"{kind}: last values of a topic",
            "rows/s",
            partial(rows_of_a_table, session, bootstrap, kind, folder),
            partial(rows_of_a_copy, rows, kind, folder / "copy"),
            limit_is=f"Spark, the same rows from Parquet to {kind}",
            pairs=pairs,
            note=f"{KEYS:,} keys",
        )
    yield interleaved(
        "iceberg: last values of a topic, by an export",
        "rows/s",
        partial(rows_of_an_export, folder),
        partial(rewrite_rate, (folder / ROWS).parent, folder / "rewritten.parquet"),
        limit_is="pyarrow, the same rows from Parquet to Parquet, one thread",
        pairs=pairs,
        note=f"{KEYS:,} keys",
    )


def load_figures(
    session: SparkSession, bootstrap: str, folder: Path, pairs: int
) -> Iterator[Figure]:
    rows = session.read.parquet(str(folder / ROWS)).select("id", "note", "price")
    load = loaded_into(bootstrap, "unchanged")
    create(bootstrap, "unchanged")
    rows_of_a_load(session, rows, load)
    sink = partial(rows_of_the_sink, rows, bootstrap)
    yield interleaved(
        "load: a table becomes a topic",
        "rows/s",
        lambda: rows_of_a_load(session, rows, loaded_into(bootstrap, created(bootstrap))),
        sink,
        limit_is="Spark's Kafka sink, which compares nothing and may write rows twice",
        pairs=pairs,
        note=f"{KEYS:,} keys",
    )
    yield interleaved(
        "load, unchanged",
        "rows/s",
        partial(rows_of_a_load, session, rows, load, unchanged=KEYS),
        sink,
        limit_is="Spark's Kafka sink, which writes all rows",
        pairs=pairs,
        note=f"{KEYS:,} keys",
    )


def rows_of_a_table(session: SparkSession, bootstrap: str, kind: str, folder: Path) -> float:
    path = folder / kind
    shutil.rmtree(path, ignore_errors=True)
    table = (DeltaTable if kind == "delta" else ParquetTable)(session, str(path))
    source = KafkaSource(bootstrap_servers=bootstrap, topics=(TOPIC,))
    started = time.perf_counter()
    write_whole(session, source, table, PAYLOAD)
    return KEYS / (time.perf_counter() - started)


def rows_of_a_copy(rows: DataFrame, kind: str, path: Path) -> float:
    shutil.rmtree(path, ignore_errors=True)
    started = time.perf_counter()
    rows.write.format(kind).save(str(path))
    return KEYS / (time.perf_counter() - started)


def rows_of_an_export(folder: Path) -> float:
    for path in (folder / "iceberg", folder / "catalog.db"):
        subprocess.run(["rm", "-rf", str(path)], check=True)
    (folder / "iceberg").mkdir()
    command = [sys.executable, "-m", "cli", "export", TOPIC, "--data-dir", str(folder / "data")]
    command += ["--to", "bank.accounts", "--format", "iceberg", *VALUES]
    command += ["--catalog-property", f"uri=sqlite:///{folder / 'catalog.db'}"]
    command += ["--catalog-property", f"warehouse=file://{folder / 'iceberg'}"]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return KEYS / (time.perf_counter() - started)


def loaded_into(bootstrap: str, topic: str) -> Load:
    source = KafkaSource(bootstrap_servers=bootstrap, topics=(topic,))
    return Load(topic=source, shape=RecordShape(key=["id"]))


def rows_of_a_load(session: SparkSession, rows: DataFrame, load: Load, unchanged: int = 0) -> float:
    started = time.perf_counter()
    end_earlier_loads(session, load.topic)
    with planned(session, rows, load) as (found, plan):
        assert plan.records == KEYS - unchanged, plan
        write(session, found, plan, load)
    return KEYS / (time.perf_counter() - started)


def rows_of_the_sink(rows: DataFrame, bootstrap: str) -> float:
    topic = created(bootstrap)
    value = F.to_json(F.struct("id", "note", "price"))
    records = rows.select(F.col("id").cast("string").alias("key"), value.alias("value"))
    sink = records.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    started = time.perf_counter()
    sink.option("topic", topic).save()
    return KEYS / (time.perf_counter() - started)


def created(bootstrap: str) -> str:
    """Create a topic, and return its name."""
    topic = f"rows-{next(_numbers)}"
    create(bootstrap, topic)
    return topic


def create(bootstrap: str, topic: str) -> None:
    wanted = NewTopic(topic, PARTITIONS, 1, config=COMPACTED)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([wanted]).values():
        future.result(30)

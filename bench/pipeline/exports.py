"""`kompakt export` beside the Spark job that writes the same table from the same broker.

    whole      ten million keys, every tenth of them written twice; cleaned once
    again      the same after a thousand more records at the end of the log, whose keys are new
    limit      the rows of the export, read from its files and written to one Parquet file by pyarrow

The export is a process of its own, with its start; the session of Spark (local[2]) runs already and has
written the table of another topic. Both write the same rows: their offsets are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from bench.base.figure import Figure, interleaved
from bench.base.processes import broker_command, free_port, running
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.spark.jars import CONNECTOR
from pipeline.spark.session import LOCAL, start_session
from pipeline.tables.formats.parquet_table import ParquetTable
from pipeline.tables.job import write_whole
from pipeline.tables.payload_options import Payload, PayloadFormat

KEYS = int(os.environ.get("KOMPAKT_BENCH_RECORDS", "10000000"))
PARTITIONS = 4
TOPIC, WARM_UP = "orders", "warm-up"
DDL = "id BIGINT, note STRING, price DOUBLE"
FORMATS = {
    "bytes": (Payload(), []),
    "json": (
        Payload(value_format=PayloadFormat.JSON, value_schema=DDL),
        ["--value-format", "json", "--value-schema", DDL],
    ),
}
MORE = 1_000


def export_figures(pairs: int) -> list[Figure]:
    """Measure records per second of each format, and an export after a few more records."""
    with tempfile.TemporaryDirectory() as folder:
        port, http, data = free_port(), free_port(), Path(folder) / "data"
        command = broker_command(
            port,
            data,
            f"http.listener=127.0.0.1:{http}",
            f"log.segment.bytes={128 << 20}",
        )
        with running(command, port):
            bootstrap = f"127.0.0.1:{port}"
            fill(bootstrap)
            compact(http)
            session = start_session("bench", LOCAL, pins=(CONNECTOR,))
            try:
                spark_rate(session, bootstrap, Path(folder) / "warm", Payload(), WARM_UP)
                return list(figures(session, bootstrap, data, Path(folder), pairs))
            finally:
                session.stop()


def figures(
    session: SparkSession, bootstrap: str, data: Path, folder: Path, pairs: int
) -> Iterator[Figure]:
    for name, (payload, options) in FORMATS.items():
        ours, theirs = folder / f"export-{name}", folder / f"spark-{name}"
        exported = partial(export_rate, data, ours, options)
        by_spark = partial(spark_rate, session, bootstrap, theirs, payload)
        taken = interleaved(
            f"{name}: last values to Parquet",
            "rows/s",
            exported,
            by_spark,
            limit_is="the Spark job `pipeline table batch`, its session running",
            pairs=pairs,
            note=f"{KEYS:,} keys",
        )
        check_same(ours, theirs)
        yield taken
        yield interleaved(
            f"{name}: last values to Parquet, beside the machine",
            "rows/s",
            exported,
            partial(rewrite_rate, ours, folder / "rewritten.parquet"),
            limit_is="the same rows, Parquet to Parquet, by pyarrow in one thread",
            pairs=pairs,
        )
    produce(bootstrap, range(KEYS, KEYS + MORE))
    yield interleaved(
        f"again, after {MORE} more records",
        "s",
        partial(seconds_to_export, data, folder / "export-bytes", []),
        lambda: KEYS / export_rate(data, folder / "fresh", []),
        limit_is="the whole export (less is better)",
        pairs=1,
    )


def export_rate(data: Path, table: Path, options: list[str]) -> float:
    """Returns the rows that a whole export writes in a second."""
    remove(table)
    return KEYS / seconds_to_export(data, table, options)


def seconds_to_export(data: Path, table: Path, options: list[str]) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "cli", "export", TOPIC, "--data-dir", str(data)]
    subprocess.run([*command, "--to", str(table), *options], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def spark_rate(
    session: SparkSession, bootstrap: str, table: Path, payload: Payload, topic: str = TOPIC
) -> float:
    remove(table)
    source = KafkaSource(bootstrap_servers=bootstrap, topics=(topic,))
    started = time.perf_counter()
    write_whole(session, source, ParquetTable(session, str(table)), payload)
    return KEYS / (time.perf_counter() - started)


def rewrite_rate(table: Path, path: Path) -> float:
    """Returns the rows that pyarrow reads and writes in a second."""
    started, rows = time.perf_counter(), 0
    scanner = ds.dataset(table / "current", exclude_invalid_files=True).scanner(use_threads=False)
    with pq.ParquetWriter(path, scanner.projected_schema, compression="zstd") as writer:
        for batch in scanner.to_batches():
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows / (time.perf_counter() - started)


def check_same(ours: Path, theirs: Path) -> None:
    columns = ["_partition", "_offset"]
    read = [
        ds.dataset(each / "current", exclude_invalid_files=True)
        .to_table(columns=columns)
        .sort_by([(column, "ascending") for column in columns])
        for each in (ours, theirs)
    ]
    assert read[0].num_rows == KEYS, read[0].num_rows
    assert read[0].equals(read[1].cast(read[0].schema)), "the tables differ"


def remove(table: Path) -> None:
    subprocess.run(["rm", "-rf", str(table)], check=True)


def fill(bootstrap: str) -> None:
    """Produce records; every tenth key twice."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1, config=settings) for name in (TOPIC, WARM_UP)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    produce(bootstrap, range(KEYS // 100), WARM_UP)
    produce(bootstrap, range(KEYS))
    produce(bootstrap, range(0, KEYS, 10))


def produce(bootstrap: str, numbers: range, topic: str = TOPIC) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1 << 18,
         "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    for number in numbers:
        value = b'{"id": %d, "note": "note number %d of the order", "price": %d.5}'
        row = value % (number, number * 7919 % 1_000_003, number % 1000)
        while True:
            try:
                producer.produce(
                    topic, key=b"%016d" % number, value=row, partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def compact(http: int) -> None:
    """Clean the topic's logs and wait for that."""
    command = [sys.executable, "-m", "cli", "compact", "now", TOPIC, "--json"]
    url = f"http://127.0.0.1:{http}"
    done = subprocess.run([*command, "--url", url], check=True, stdout=subprocess.PIPE)
    assert json.loads(done.stdout)

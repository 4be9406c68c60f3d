"""Segment files as a Spark source (`pipeline/source/segment_source.py`), compared with Spark's Kafka
source.

Both read the same topics of one running broker into Spark rows, which are dropped (`noop`), in the
same session (local[2]), in turn. Also without Spark: the same ranges as Arrow batches, in one thread of
this process, compared with reading and checksumming the same bytes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from bench.base.figure import Figure, interleaved
from bench.base.processes import broker_command, free_port, running
from pipeline.source.filters import RowFilter
from pipeline.source.options import parse_options
from pipeline.source.plan import plan
from pipeline.source.read import CHUNK_BYTES, record_batches
from pipeline.source.segment_source import register
from pipeline.spark.session import start_session
from protocol.records.batch_scan import crc32c
from storage.files.local_files import ReadOnlyFileSystem

RECORDS = int(os.environ.get("KOMPAKT_BENCH_RECORDS", "1000000"))
PARTITIONS = 4
SHAPES = (("100-bytes", 100, "none", 1), ("1-kilobyte", 1000, "none", 5), ("zstd", 100, "zstd", 1))
"""Topic, bytes of a value, codec, and the divisor of the number of records."""
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)


def segment_source_figures(pairs: int) -> list[Figure]:
    """Measure rows per second of each shape, with Spark and without it."""
    with tempfile.TemporaryDirectory() as folder:
        port, data = free_port(), Path(folder) / "data"
        # Eight segments a topic, so that both sources have tasks for both cores.
        with running(broker_command(port, data, f"log.segment.bytes={64 << 20}"), port):
            bootstrap = f"127.0.0.1:{port}"
            for topic, value_bytes, codec, fewer in SHAPES:
                fill(bootstrap, topic, RECORDS // fewer, value_bytes, codec)
            session = start_session("bench")
            try:
                register(session)
                return [
                    figure
                    for topic, _, _, fewer in SHAPES
                    for figure in figures_of(
                        session, bootstrap, data, topic, RECORDS // fewer, pairs
                    )
                ]
            finally:
                session.stop()


def figures_of(
    session: SparkSession, bootstrap: str, data: Path, topic: str, records: int, pairs: int
) -> Iterator[Figure]:
    kafka = session.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    files = session.read.format("kompakt")
    sources = [reader.option("subscribe", topic) for reader in (files, kafka)]
    ours, theirs = sources[0].load(str(data)), sources[1].load()
    for frame in (ours, theirs):
        assert frame.count() == records
        spark_rate(frame, records)
    yield interleaved(
        f"{topic}: rows into Spark",
        "records/s",
        partial(spark_rate, ours, records),
        partial(spark_rate, theirs, records),
        limit_is="Spark's Kafka source, from the same broker",
        pairs=pairs,
    )
    yield interleaved(
        f"{topic}: Arrow batches in one thread",
        "MB/s",
        partial(arrow_rate, data, topic),
        partial(checksum_rate, data, topic),
        limit_is="the same bytes read and checksummed, in one thread",
        pairs=pairs,
        note=f"{records} records",
    )


def spark_rate(frame: DataFrame, records: int) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return records / (time.perf_counter() - started)


def arrow_rate(data: Path, topic: str) -> float:
    """Returns the megabytes of segment files that become Arrow batches in a second."""
    fs = ReadOnlyFileSystem()
    ranges = plan(fs, parse_options({"path": str(data), "subscribe": topic}), RowFilter())
    started = time.perf_counter()
    for each in ranges:
        for _ in record_batches(fs, each, SCHEMA):
            pass
    return log_bytes(data, topic) / 1e6 / (time.perf_counter() - started)


def checksum_rate(data: Path, topic: str) -> float:
    fs, buffer = ReadOnlyFileSystem(), memoryview(bytearray(CHUNK_BYTES))
    started = time.perf_counter()
    for path in log_files(data, topic):
        file = fs.open(str(path))
        for position in range(0, file.size, CHUNK_BYTES):
            crc32c(buffer[: file.read_into(position, buffer)])
        file.close()
    return log_bytes(data, topic) / 1e6 / (time.perf_counter() - started)


def log_files(data: Path, topic: str) -> list[Path]:
    return sorted(data.glob(f"{topic}.*/*/*.log"))


def log_bytes(data: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in log_files(data, topic))


def fill(bootstrap: str, topic: str, records: int, value_bytes: int, codec: str) -> None:
    """Produce records with half-random values."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50,
         "batch.size": 1 << 18, "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    for number in range(records):
        value = os.urandom(value_bytes // 2) + bytes(value_bytes - value_bytes // 2)
        while True:
            try:
                producer.produce(topic, key=b"%016d" % number, value=value, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0

"""A table that an export has written is read by DuckDB, and continued by the jobs on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from pipeline.tables.payload_options import Payload, PayloadFormat
from tests.harness.broker_process import BrokerProcess
from tests.harness.clients import create_topic, deliver_all
from tests.harness.compacted_log import CompactedLog
from tests.harness.duckdb_reader import with_extensions
from tests.harness.exported_log import (
    CATALOG,
    FORMATS,
    NAME,
    catalog_properties,
    export_to,
    on_disk,
    partition_column,
    rows_in,
    target_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL_TYPES = (
    "n BIGINT, i INT, d DOUBLE, f FLOAT, b BOOLEAN, t STRING, moment TIMESTAMP, day DATE,"
    " m DECIMAL(9, 2), a ARRAY<BIGINT>, s STRUCT<x: STRING, y: ARRAY<INT>>"
)
VALUE = (
    b'{"n": 7, "i": 1, "d": 0.5, "f": 1.5, "b": true, "t": "x", "moment": "2026-01-02T03:04:05Z",'
    b' "day": "2026-01-02", "m": 1.25, "a": [1, 2], "s": {"x": "y", "y": [3]}}'
)


def scan_of(kind: str, folder: Path) -> str:
    match kind:
        case "parquet":
            return f"read_parquet('{folder}/parquet/current/*.parquet')"
        case "delta":
            return f"delta_scan('{folder}/delta')"
        case _:
            table = load_catalog(CATALOG, **catalog_properties(folder)).load_table(NAME)
            return f"iceberg_scan('{table.metadata_location}')"


@pytest.mark.parametrize("kind", FORMATS)
def test_duckdb_reads_what_each_type_says(kind: str, tmp_path: Path) -> None:
    log = CompactedLog()
    log.append((b"a", VALUE), (b"b", b"{}"), (b"c", None))
    payload = Payload(
        value_format=PayloadFormat.JSON, value_schema=ALL_TYPES, key_format=PayloadFormat.STRING
    )
    for _ in range(2):
        export_to(target_of(kind, tmp_path), on_disk(log, tmp_path), payload=payload)
        log.append((b"d", b"{}"))
    told = "key, n, i, d, f, b, t, epoch_ms(moment), day::VARCHAR, m::VARCHAR, a, s"
    columns = f"{told}, {partition_column(kind)}, _offset"
    read = with_extensions().sql(f"SELECT {columns} FROM {scan_of(kind, tmp_path)} ORDER BY key")

    milliseconds = 1_767_323_045_000
    row = (
        "a",
        7,
        1,
        0.5,
        1.5,
        True,
        "x",
        milliseconds,
        "2026-01-02",
        "1.25",
        [1, 2],
        {"x": "y", "y": [3]},
    )
    nothing = (None,) * 11
    assert read.fetchall() == [(*row, 0, 0), ("b", *nothing, 0, 1), ("d", *nothing, 0, 3)]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_stream_continues_an_export_and_an_export_a_stream(
    session: SparkSession, kind: str, tmp_path: Path
) -> None:
    from pipeline.offsets.kafka_source import KafkaSource
    from pipeline.tables.job import Pace, follow

    payload = Payload(
        value_format=PayloadFormat.JSON, value_schema=ALL_TYPES, key_format=PayloadFormat.STRING
    )
    with BrokerProcess(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, "orders", partitions=1, config={"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": bootstrap})
        source = KafkaSource(bootstrap_servers=bootstrap, topics=("orders",))
        deliver_all(producer, "orders", [(b"a", VALUE), (b"b", VALUE), (b"c", VALUE)])
        (log,) = logs_of(broker.data_dir)
        export_to(target_of(kind, tmp_path), log, payload=payload)

        deliver_all(producer, "orders", [(b"a", None), (b"b", b'{"n": 8}')])
        follow(session, source, spark_table(session, kind, tmp_path), payload, Pace())
        assert rows_in(kind, tmp_path, value="n") == {(0, "b"): (4, 8), (0, "c"): (2, 7)}

        deliver_all(producer, "orders", [(b"c", b'{"n": 9}')])
        export_to(target_of(kind, tmp_path), log, payload=payload)
        assert rows_in(kind, tmp_path, value="n") == {(0, "b"): (4, 8), (0, "c"): (5, 9)}


def logs_of(data: Path) -> Sequence[Any]:
    from pipeline.export.run import found_topic

    return found_topic([data], "orders", None).logs


def spark_table(session: SparkSession, kind: str, folder: Path) -> Any:
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.formats.parquet_table import ParquetTable
    from pipeline.tables.formats.table import Layout

    made = ParquetTable if kind == "parquet" else DeltaTable
    return made(session, str(folder / kind), Layout(key_column="key"))

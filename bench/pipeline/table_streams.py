"""`pipeline table` beside the same jobs written by hand with PySpark (`hand_written.py`).

    whole          a topic of a million keys becomes a table
    a micro-batch  a thousand more records are merged into that table: by one run of the stream, from
                   its start to its end, in a session that runs already

Delta, and with PySpark 4.1 Iceberg; one session (local[2]); values are JSON of three columns.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.base.figure import Figure, interleaved
from bench.base.processes import broker_command, free_port, running
from bench.pipeline import hand_written
from bench.pipeline.exports import DDL, TOPIC, produce
from bench.pipeline.table_kinds import create
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.spark.jars import CONNECTOR, DELTA, ICEBERG, has_iceberg, installed_spark
from pipeline.spark.session import LOCAL, start_session
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.formats.table import DEFAULT_LAYOUT, Table
from pipeline.tables.job import Pace, follow, write_whole
from pipeline.tables.options import TableFormat
from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.place import Place

KEYS = int(os.environ.get("KOMPAKT_BENCH_RECORDS", "1000000"))
CHANGES = 1_000
PAYLOAD = Payload(value_format=PayloadFormat.JSON, value_schema=DDL)
CATALOG = "lake"


def table_stream_figures(pairs: int) -> list[Figure]:
    """Measure whole tables and micro-batches."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        with running(broker_command(port, folder / "data"), port):
            bootstrap = f"127.0.0.1:{port}"
            create(bootstrap, TOPIC)
            produce(bootstrap, range(KEYS))
            catalog = {"type": "hadoop", "warehouse": str(folder / "lake")}
            lake = Place(path=f"{CATALOG}.db.ours", format=TableFormat.ICEBERG, catalog=catalog)
            options = lake.session_options(LOCAL)
            iceberg = (ICEBERG,) if has_iceberg() else ()
            session = start_session("bench", options, pins=(CONNECTOR, DELTA, *iceberg))
            try:
                return [
                    figure
                    for kind in ("delta", *(["iceberg"] if iceberg else []))
                    for figure in Kind(session, bootstrap, kind, folder).figures(pairs)
                ]
            finally:
                session.stop()


class Kind:
    """One format: a table of ours, and one of the job that is written by hand."""

    def __init__(self, session: SparkSession, bootstrap: str, kind: str, folder: Path) -> None:
        self._session, self._bootstrap, self._kind = session, bootstrap, kind
        self._folder = folder
        self._source = KafkaSource(bootstrap_servers=bootstrap, topics=(TOPIC,))
        self._choices = random.Random(1)

    def figures(self, pairs: int) -> Iterator[Figure]:
        self._write_ours()  # warms up
        yield interleaved(
            f"{self._kind}: whole",
            "rows/s",
            partial(self._rate, KEYS, self._write_ours),
            partial(self._rate, KEYS, self._write_theirs),
            limit_is="PySpark written by hand",
            pairs=pairs,
            note=f"{KEYS:,} keys, Spark {installed_spark()}",
        )
        self._follow_ours()
        self._follow_theirs()
        yield interleaved(
            f"{self._kind}: a micro-batch of {CHANGES:,} records",
            "1/min",
            partial(self._after_changes, self._follow_ours),
            partial(self._after_changes, self._follow_theirs),
            limit_is="PySpark written by hand, with a checkpoint beside the table",
            pairs=pairs,
            note=f"into a table of {KEYS:,} rows, Spark {installed_spark()}",
        )

    def _table(self) -> Table:
        place = Place(path=self._name("ours"), format=TableFormat(self._kind))
        return place.table(self._session, DEFAULT_LAYOUT, Evolution.STRICT, is_history=False)

    def _write_ours(self) -> None:
        write_whole(self._session, self._source, self._table(), PAYLOAD)

    def _write_theirs(self) -> None:
        table = self._name("theirs")
        hand_written.write_whole(self._session, self._bootstrap, self._kind, table)

    def _follow_ours(self) -> None:
        follow(self._session, self._source, self._table(), PAYLOAD, Pace())

    def _follow_theirs(self) -> None:
        named = self._name("theirs")
        table = f"delta.`{named}`" if self._kind == "delta" else named
        checkpoint = self._folder / f"checkpoint-{self._kind}"
        hand_written.follow(self._session, self._bootstrap, table, checkpoint)

    def _name(self, whose: str) -> str:
        if self._kind == "iceberg":
            return f"{CATALOG}.db.{whose}"
        return str(self._folder / f"{self._kind}-{whose}")

    def _after_changes(self, run: Callable[[], None]) -> float:
        """Returns how many such runs there are in a minute. Both tables get the records of both."""
        first = self._choices.randrange(KEYS - CHANGES)
        produce(self._bootstrap, range(first, first + CHANGES))
        return self._rate(60, run)

    @staticmethod
    def _rate(count: int, run: Callable[[], None]) -> float:
        started = time.perf_counter()
        run()
        return count / (time.perf_counter() - started)

"""Segment files as a Spark source: `spark.read.format("kompakt").load("/a/data/directory")`.

It reads a data directory, a topic's folder or a partition's, of a live broker or of a backup. It needs
no broker, takes no lock and changes nothing. Its columns and options are those of Spark's Kafka source.
`register(session)` registers it. Spark also finds it by itself if the distribution is installed,
because it looks for modules named `pyspark_*` (pyspark_kompakt.py).

It reads batches, not streams: a stream follows a broker, through Spark's Kafka source.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.source.filters import RowFilter
from pipeline.source.options import BadOption, SegmentOptions, parse_options
from pipeline.source.plan import plan
from pipeline.source.read import RangeOfLog, record_batches
from storage.files.local_files import ReadOnlyFileSystem

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def register(session: SparkSession) -> None:
    """Register the source in a session, and turn on the session's predicate pushdown."""
    session.dataSource.register(SegmentSource)
    session.conf.set(PUSHDOWN, "true")


class SegmentSource(DataSource):  # type: ignore[misc]
    """The interface to Spark; it travels to the workers that plan and read."""

    @classmethod
    def name(cls) -> str:
        return "kompakt"

    def schema(self) -> str:
        has_headers = parse_options(self.options).include_headers
        return f"{COLUMNS}, {HEADERS}" if has_headers else COLUMNS

    def reader(self, schema: Any) -> SegmentReader:
        """Returns a reader of these columns.

        Spark refuses a reader that takes filters if pushdown is off, so there are two classes.
        """
        takes_filters = PUSHDOWN_WORKER in sys.modules
        kind = FilteringReader if takes_filters else SegmentReader
        return kind(parse_options(self.options), schema)

    def streamReader(self, schema: Any) -> Any:
        raise BadOption(
            "segment files are read in batches; a stream follows the broker:"
            ' spark.readStream.format("kafka")'
        )


class Task(InputPartition):  # type: ignore[misc]
    """The range that one task reads."""

    def __init__(self, value: RangeOfLog) -> None:
        super().__init__(value)


class SegmentReader(DataSourceReader):  # type: ignore[misc]
    """Plans a read in one process; copies of it read in others."""

    def __init__(self, options: SegmentOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._filter = RowFilter()

    def partitions(self) -> list[Task]:
        return [Task(each) for each in plan(ReadOnlyFileSystem(), self._options, self._filter)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields one task's records. Without ranges Spark runs one task, with nothing to read."""
        # PySpark 4.1 gives that task no partition, and names the time zone otherwise.
        if partition is None or partition.value is None:
            return iter(())
        zone: Any = {"timezone": "UTC"} if pyspark.__version__ >= "4.2" else {"timestamp_utc": True}
        schema = to_arrow_schema(self._schema, **zone)
        return record_batches(ReadOnlyFileSystem(), partition.value, schema)


class FilteringReader(SegmentReader):
    """The same for sessions with predicate pushdown."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        return self._filter.take(filters)

"""Segment files as a source of Spark: `spark.read.format("kompakt").load("/a/data/directory")`.

Reads a data directory, a topic's folder or a partition's, of a live broker or of a backup, without a
broker, a lock or a change. Its columns and options are those of Spark's Kafka source. Registered by
`register(session)`, or by itself where the distribution is installed: Spark looks for modules named
`pyspark_*` (pyspark_kompakt.py).

It reads batches, not streams: a stream follows a broker, through Spark's Kafka source.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.segment_filters import RowFilter
from pipeline.segment_options import BadOption, SegmentOptions, parse_options
from pipeline.segment_plan import plan
from pipeline.segment_read import RangeOfLog, record_batches
from storage.local_files import ReadOnlyFileSystem

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def register(session: SparkSession) -> None:
    """Make the source known to a session, and let the session tell it what it filters by."""
    session.dataSource.register(SegmentSource)
    session.conf.set(PUSHDOWN, "true")


class SegmentSource(DataSource):  # type: ignore[misc]
    """The source as Spark sees it; it travels to the workers that plan and read."""

    @classmethod
    def name(cls) -> str:
        return "kompakt"

    def schema(self) -> str:
        has_headers = parse_options(self.options).include_headers
        return f"{COLUMNS}, {HEADERS}" if has_headers else COLUMNS

    def reader(self, schema: Any) -> SegmentReader:
        """A reader of these columns. Spark refuses one that takes filters where filters are off."""
        takes_filters = PUSHDOWN_WORKER in sys.modules
        kind = FilteringReader if takes_filters else SegmentReader
        return kind(parse_options(self.options), schema)

    def streamReader(self, schema: Any) -> Any:
        raise BadOption(
            "segment files are read in batches; a stream follows the broker:"
            ' spark.readStream.format("kafka")'
        )


class Task(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    def __init__(self, value: RangeOfLog) -> None:
        super().__init__(value)


class SegmentReader(DataSourceReader):  # type: ignore[misc]
    """Plans in one process and reads in others, where it arrives as a copy."""

    def __init__(self, options: SegmentOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema
        self._filter = RowFilter()

    def partitions(self) -> list[Task]:
        return [Task(each) for each in plan(ReadOnlyFileSystem(), self._options, self._filter)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One task's records. Without any range there is one task, for nothing."""
        if partition.value is None:
            return iter(())
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return record_batches(ReadOnlyFileSystem(), partition.value, schema)


class FilteringReader(SegmentReader):
    """The same, where the session tells what it filters by."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        return self._filter.take(filters)

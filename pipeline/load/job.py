"""Loads a table into a compacted topic: compares the two, and writes what differs.

docs/design/load.md says why no record is written twice when a task or the driver dies.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.load.difference import WRITTEN, Kind, Plan, difference, plan_of
from pipeline.load.records import RecordShape, records_of
from pipeline.load.topic import create, exists, refuse_unfit
from pipeline.load.transaction import LoadRecord, Target, write_once
from pipeline.offsets.cut import TableRefused
from pipeline.offsets.kafka_offsets import ask_offsets
from pipeline.offsets.kafka_source import KafkaSource
from pipeline.offsets.source_options import SECURITY
from pipeline.spark.persisted import persisted
from pipeline.tables.job import ranked_records
from pipeline.tables.latest import SCHEMA, latest

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS_PER_TASK = 100_000
"""Records of one transaction at most, on average: a hash of the key assigns them to tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to load, and how."""

    topic: KafkaSource
    """One topic, with the options to read it."""
    shape: RecordShape
    sync: bool = False
    """Whether keys of the topic that the table does not have are deleted."""
    create_partitions: int | None = None
    """Create the topic with this number of partitions if it does not exist."""
    records_per_task: int = RECORDS_PER_TASK


@contextmanager
def planned(session: SparkSession, rows: DataFrame, load: Load) -> Iterator[tuple[DataFrame, Plan]]:
    """Compare the table with the topic, and keep the difference within this context. Changes nothing.

    Call `end_earlier_loads` before if the difference is to be written: what an earlier load commits
    after this would be missing in the comparison.

    Raises:
        TableRefused: the rows make no records, or the topic cannot be read.
    """
    records = records_of(rows, load.shape)
    with persisted(difference(records, held(session, load), sync=load.sync)) as found:
        yield found, plan_of(found)


def held(session: SparkSession, load: Load) -> DataFrame:
    """Returns the last record of each key of the topic; none if the load has yet to create it."""
    if not exists(session, load.topic):
        if load.create_partitions is None:
            (topic,) = load.topic.topics
            raise TableRefused(f"{topic} does not exist: create it by --create PARTITIONS")
        return session.createDataFrame([], SCHEMA)
    refuse_unfit(session, load.topic)
    cut = ask_offsets(session, load.topic).cut()
    return latest(ranked_records(session, load.topic, cut))


def write(session: SparkSession, found: DataFrame, plan: Plan, load: Load) -> Mapping[Kind, int]:
    """Write a difference to the topic, which is created first if the load says so. Returns how many
    records of each kind were written.

    Raises:
        TableRefused: the topic cannot be created.
        pyspark.errors.PythonException: `LoadFailed` in a task. What other tasks have committed stays,
            and a repetition finds it unchanged.
    """
    if load.create_partitions is not None:
        create(session, load.topic, load.create_partitions)
    if not plan.records:
        return dict.fromkeys(WRITTEN, 0)
    tasks = -(-plan.records // load.records_per_task)
    wanted = found.where(F.col("kind") != Kind.UNCHANGED.value)
    shares = wanted.select(*LoadRecord._fields).repartition(tasks, "key")
    counted = shares.mapInArrow(writer(target_of(load)), "kind STRING, records BIGINT")
    summed = counted.groupBy("kind").agg(F.sum("records").alias("records")).collect()
    sums = {line["kind"]: line["records"] for line in summed}
    return {kind: sums.get(kind.value, 0) for kind in WRITTEN}


def target_of(load: Load) -> Target:
    (topic,) = load.topic.topics
    properties = load.topic.client_properties()
    return Target(
        bootstrap_servers=load.topic.bootstrap_servers,
        topic=topic,
        run=uuid.uuid4().hex,
        properties={name: text for name, text in properties.items() if name.startswith(SECURITY)},
    )


def writer(
    target: Target,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns what a task does with its records: writes them, and gives their number by kind."""

    def write_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield as_batch(write_once(target, context.partitionId(), each_record(batches)))

    return write_task


def each_record(batches: Iterable[pa.RecordBatch]) -> Iterator[LoadRecord]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in LoadRecord._fields)
        yield from map(LoadRecord._make, zip(*columns, strict=True))


def as_batch(counts: Counter[str]) -> pa.RecordBatch:
    import pyarrow as pa

    columns = {"kind": pa.array(list(counts), pa.string()), "records": list(counts.values())}
    return pa.RecordBatch.from_pydict(columns)

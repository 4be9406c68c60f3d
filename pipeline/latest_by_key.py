"""The latest value of each key of a compacted topic, as Parquet.

    python -m pipeline.latest_by_key --bootstrap-servers 127.0.0.1:9092 --topic orders --output o

Reads through Spark's own Kafka source, in `batch` (the whole topic, the table written anew) or as
a `stream` with the trigger `availableNow` (what is new since the last run, merged into the table).
Both end with the same table: `<output>/current`, with the columns partition, offset, timestamp,
key and value (both as bytes), one row for each key that has a value. A tombstone removes its key.
`failOnDataLoss` is on: offsets that are gone stop the job.

A key has an order only within a partition. If producers with different partitioners sent one key
to two partitions, the table has a row for each. Records without a key have no latest one; they
are left out.

Replays are harmless: the table knows, for each partition, the offset up to which it takes records
into account, and a record below it is ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.jars import JarsUnavailable
from pipeline.spark import start_session
from pipeline.versioned_table import VersionedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The topic to read."""

    bootstrap_servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of Spark's Kafka source, such as `kafka.security.protocol`."""

    def all_options(self) -> dict[str, str]:
        """What the source is given; a broker that does not answer ends the job within 30 s."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
            "fetchOffset.numRetries": "1",
            "kafka.default.api.timeout.ms": "15000",
            "kafka.request.timeout.ms": "10000",
            **self.options,
        }


class Mode(enum.StrEnum):
    """How the topic is read."""

    BATCH = "batch"
    STREAM = "stream"


def run_batch(session: SparkSession, source: Source, table: VersionedTable) -> None:
    """Read the whole topic and replace the table."""
    options = {**source.all_options(), "endingOffsets": "latest"}
    records = session.read.format("kafka").options(**options).load().select(*COLUMNS)
    records.persist()
    try:
        replace(table, live(latest(records)), progress_of(records))
    finally:
        records.unpersist()


def run_stream(
    session: SparkSession,
    source: Source,
    table: VersionedTable,
    *,
    offsets_per_batch: int | None = None,
) -> None:
    """Merge what is new since the last run into the table; the checkpoint is kept beside it."""
    options = source.all_options()
    if offsets_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(offsets_per_batch)
    records = session.readStream.format("kafka").options(**options).load().select(*COLUMNS)
    query = (
        records.writeStream.foreachBatch(lambda batch, _: merge(session, batch, table))
        .option("checkpointLocation", str(table.path / "_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if not table.current.exists():
        replace(table, session.createDataFrame([], SCHEMA), {})


def merge(session: SparkSession, batch: DataFrame, table: VersionedTable) -> None:
    """Bring one micro-batch into the table, once, however often Spark repeats it."""
    known = table.progress()
    fresh = batch.where(F.col("offset") >= next_offset(known))
    fresh.persist()
    try:
        progress = progress_of(fresh)
        if not progress and known:
            return
        rows = latest(fresh)
        if known:
            rows = latest(session.read.parquet(str(table.current)).unionByName(rows))
        replace(table, live(rows), {**known, **progress})
    finally:
        fresh.unpersist()


SCHEMA = "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
COLUMNS = ("partition", "offset", "timestamp", "key", "value")


def latest(records: DataFrame) -> DataFrame:
    """The record with the highest offset of each key of each partition, tombstones included."""
    last = F.max(F.struct("offset", "timestamp", "value")).alias("last")
    keyed = records.where(F.col("key").isNotNull()).groupBy("partition", "key").agg(last)
    return keyed.select("partition", "last.offset", "last.timestamp", "key", "last.value")


def live(records: DataFrame) -> DataFrame:
    """Without the tombstones: the progress keeps what they hid from coming back."""
    return records.where(F.col("value").isNotNull())


def progress_of(records: DataFrame) -> dict[int, int]:
    rows = records.groupBy("partition").agg((F.max("offset") + 1).alias("next")).collect()
    return {row["partition"]: row["next"] for row in rows}


def next_offset(progress: Mapping[int, int]) -> Column:
    """The first offset of a row's partition that the table has not taken into account yet."""
    if not progress:
        return F.lit(0)
    pairs = [F.lit(number) for pair in sorted(progress.items()) for number in pair]
    return F.coalesce(F.create_map(*pairs)[F.col("partition")], F.lit(0))


def replace(table: VersionedTable, rows: DataFrame, progress: Mapping[int, int]) -> None:
    table.publish(lambda folder: rows.write.parquet(str(folder)), progress)


def main(
    *,
    bootstrap_servers: Annotated[str, typer.Option(help="host:port of the broker.")],
    topic: Annotated[str, typer.Option(help="The compacted topic to read.")],
    output: Annotated[Path, typer.Option(help="Folder of the table; read <output>/current.")],
    mode: Annotated[Mode, typer.Option(help="The whole topic, or what is new.")] = Mode.BATCH,
    offsets_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Stream: at most so many offsets a micro-batch.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="name=value for Spark's Kafka source; repeatable.")
    ] = None,
) -> None:
    """Write the latest value of each key of a compacted topic as Parquet."""
    options = parse_options(option or [])
    source = Source(bootstrap_servers=bootstrap_servers, topic=topic, options=options)
    try:
        rows = write_table(source, output, mode, offsets_per_batch)
    except JarsUnavailable as error:
        raise SystemExit(f"latest_by_key: {error}") from error
    except (PySparkException, Py4JJavaError) as error:
        raise SystemExit(
            f"latest_by_key: {topic} at {bootstrap_servers}: {cause(error)}"
        ) from error
    typer.echo(f"{rows} keys in {output / 'current'}")


def write_table(source: Source, output: Path, mode: Mode, offsets_per_batch: int | None) -> int:
    """Run the job in a session of its own; the number of rows in the table."""
    session = start_session("latest_by_key")
    try:
        table = VersionedTable(output)
        if mode is Mode.BATCH:
            run_batch(session, source, table)
        else:
            run_stream(session, source, table, offsets_per_batch=offsets_per_batch)
        return int(session.read.parquet(str(table.current)).count())
    finally:
        session.stop()


def parse_options(pairs: list[str]) -> dict[str, str]:
    """`name=value` each.

    Raises:
        typer.BadParameter: a pair has no equals sign or no name.
    """
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not name=value", param_hint="--option")
    return dict(pair.split("=", 1) for pair in pairs)


def cause(error: PySparkException | Py4JJavaError) -> str:
    """The last line of the chain of causes: what Kafka's client said, without Spark's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    said = causes[-1] if causes else next((line for line in lines if line), type(error).__name__)
    return said.removeprefix("org.apache.kafka.common.errors.")


if __name__ == "__main__":
    typer.run(main)

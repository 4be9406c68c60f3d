"""The jobs of `pipeline table` written by hand with PySpark, for a topic whose values are JSON.

They do less: no value or key is refused, other programs' commits are not noticed, and a stream's offsets
are in a checkpoint beside the table, so that a crash between the two merges a micro-batch twice.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.pipeline.exports import DDL, TOPIC

BATCH = "hand_written_batch"
MERGE = f"""
MERGE INTO {{table}} AS t USING {BATCH} AS s
ON t.partition = s.partition AND t.key = s.key
WHEN MATCHED AND s.gone THEN DELETE
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND NOT s.gone THEN INSERT *
"""


def last_values(records: DataFrame) -> DataFrame:
    """Returns the last value of each key, as columns; `gone` if that is a tombstone."""
    latest = F.max_by(F.struct("offset", "timestamp", "value"), "offset").alias("last")
    last = records.groupBy("partition", "key").agg(latest).select("partition", "key", "last.*")
    parsed = F.from_json(F.col("value").cast("string"), DDL).alias("row")
    gone = F.col("value").isNull().alias("gone")
    return last.select("partition", "key", "offset", "timestamp", gone, parsed).select(
        "partition", "key", "offset", "timestamp", "gone", "row.*"
    )


def write_whole(session: SparkSession, bootstrap: str, kind: str, table: str) -> None:
    """Write the topic's last values as a table."""
    records = session.read.format("kafka").options(**options(bootstrap)).load()
    rows = last_values(records).where("NOT gone")
    if kind == "delta":
        rows.write.format(kind).mode("overwrite").save(table)
    else:
        rows.writeTo(table).using(kind).createOrReplace()


def follow(session: SparkSession, bootstrap: str, table: str, checkpoint: Path) -> None:
    """Merge what the topic has had since the last call, in SQL's name of the table."""

    def merge(batch: DataFrame, _: int) -> None:
        last_values(batch).createOrReplaceTempView(BATCH)
        batch.sparkSession.sql(MERGE.format(table=table))

    records = session.readStream.format("kafka").options(**options(bootstrap)).load()
    query = (
        records.writeStream.foreachBatch(merge)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def options(bootstrap: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }

"""Offsets that no record has, between those of the records that a stream reads."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.offsets.cut import Cut
from pipeline.tables.latest import next_offset

GAP = "_gap"
"""The column with the offset after the last gap before a record; null if there is none."""


def with_gaps(fresh: DataFrame, known: Cut) -> DataFrame:
    """Add `_gap` to all records from the offsets `known` on."""
    in_order = Window.partitionBy("topic", "partition").orderBy("offset")
    before = F.coalesce(F.lag("offset").over(in_order), next_offset(known) - 1)
    is_after_gap = F.col("offset") - before > 1
    return fresh.withColumn(GAP, F.when(is_after_gap, F.col("offset"))).withColumn(
        GAP, F.max(GAP).over(in_order)
    )


def gaps(fresh: DataFrame, known: Cut) -> list[tuple[str, int, int, str]]:
    """Returns the partitions in which offsets have no record: topic, partition, the offset from which on
    all have one, and that record's time in UTC.

    They were removed by a pass, or are markers of transactions, which no reader sees.

    Args:
        fresh: records, as the source gives them.
        known: the offsets from which they were read.
    """
    found = (
        with_gaps(fresh, known)
        .where(F.col(GAP) == F.col("offset"))
        .groupBy("topic", "partition")
        .agg(F.max("offset").alias("since"), F.max_by("timestamp", "offset").alias("at"))
        .withColumn("at", F.date_format("at", "yyyy-MM-dd HH:mm:ss"))
        .orderBy("topic", "partition")
        .collect()
    )
    return [(row["topic"], row["partition"], row["since"], row["at"]) for row in found]

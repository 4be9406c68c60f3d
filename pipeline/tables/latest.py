"""Finds the last record of each key of each partition, including tombstones.

The last one has the highest rank: its offset, or its version before that (`pipeline/source/ranks.py`).

A key has an order only within a partition: if producers with different partitioners sent one key to
two partitions, it has a last record in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.offsets.cut import Cut, Offsets
from pipeline.source.ranks import rank_of
from pipeline.tables.formats.table import IDENTITY

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
"""The used columns of the Kafka source."""
RAW_KEY = "raw_key"
"""The column of a key's bytes, beside what they say."""
RECORD_KEY = ("topic", "partition", "key")
"""What a record has in common with the others of its key."""
RECORDS = "_records"
SCHEMA = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"


def record_key(key_column: str) -> list[Column]:
    """Returns what identifies a row of a table, under the names that a record has for it."""
    ours = zip((*IDENTITY, key_column), RECORD_KEY, strict=True)
    return [F.col(f"`{name}`").alias(as_key) for name, as_key in ours]


def latest(records: DataFrame, *, counted: bool = False) -> DataFrame:
    """Returns the record of the highest rank of each key; a null value is a tombstone.

    Args:
        records: with keys; with a column of versions (`pipeline/source/ranks.py`) if a topic ranks by
            them, and one of the keys' bytes if the keys are read already; both stay.
        counted: add `_records`, the number of the key's records.
    """
    raw = [RAW_KEY] if RAW_KEY in records.columns else []
    carried = [*rank_of(records), "timestamp", "value", *raw]
    last = F.max(F.struct(*carried)).alias("last")
    count = [F.count("offset").alias(RECORDS)] if counted else []
    keyed = records.groupBy("topic", "partition", "key").agg(last, *count)
    names = (*(f"last.{name}" for name in carried), *([RECORDS] if counted else ()))
    return keyed.select("topic", "partition", "key", *names)


def records_of(last: DataFrame) -> int:
    """Returns how many records `latest` has counted."""
    (row,) = last.agg(F.sum(RECORDS)).collect()
    return int(row[0] or 0)


def becoming_rows(records: DataFrame, *, all_of_a_key: bool) -> DataFrame:
    """Returns the records that become rows: the last one of each key, or for a history all of them."""
    return records if all_of_a_key else latest(records)


def not_held_by(held: Cut, records: DataFrame) -> DataFrame:
    """Returns the records that a table has not taken into account yet."""
    return records.where(F.col("offset") >= next_offset(held))


def next_offset(held: Cut) -> Column:
    """Returns the first offset of a row's partition that the table does not hold."""
    if not held.rows():
        return F.lit(0)
    topics = {topic: map_of(parts) for topic, parts in held.offsets.items() if parts}
    return F.coalesce(map_of(topics)[F.col("topic")][F.col("partition")], F.lit(0))


def map_of(items: Mapping[Any, Any]) -> Column:
    return F.create_map(
        *(part for key, item in items.items() for part in (F.lit(key), F.lit(item)))
    )


def ends_and_count(records: DataFrame) -> tuple[Offsets, int]:
    """Returns, for each partition, the offset after its last record; and the number of all records."""
    next_and_count = (F.max("offset") + 1).alias("next"), F.count("offset").alias("records")
    rows = records.groupBy("topic", "partition").agg(*next_and_count).collect()
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row["topic"], {})[row["partition"]] = row["next"]
    return found, sum(row["records"] for row in rows)

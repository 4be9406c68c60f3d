"""Compares what a table says with what a topic says, key by key.

    key BINARY, value BINARY, partition INT, kind STRING, rows BIGINT

`value` is null for a key that is to be deleted, `partition` for one that the topic does not have, `rows`
is the number of the table's rows with this key, and null for a deleted one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.offsets.cut import TableRefused


class Kind(enum.StrEnum):
    """What a load does with a key."""

    NEW = "new"
    CHANGED = "changed"
    DELETED = "deleted"
    UNCHANGED = "unchanged"


WRITTEN = (Kind.NEW, Kind.CHANGED, Kind.DELETED)
"""The kinds that are records of the load."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many keys are of each kind, and the bytes of the keys and values to write."""

    counts: Mapping[Kind, int]
    bytes_count: int

    @property
    def records(self) -> int:
        """The number of records to write."""
        return sum(self.counts[kind] for kind in WRITTEN)


def difference(records: DataFrame, held: DataFrame, *, sync: bool) -> DataFrame:
    """Returns what has to become of each key, in the columns above.

    A key that the topic holds in several partitions has a line for each.

    Args:
        records: `key` and `value`, of the table.
        held: the topic's last records, `partition`, `key` and `value`; with tombstones, or without.
        sync: whether keys that the table does not have are deleted; else they are left out.
    """
    said = records.groupBy("key").agg(
        F.count(F.lit(1)).alias("rows"), F.first("value").alias("value")
    )
    alive = held.where("key IS NOT NULL AND value IS NOT NULL")
    there = alive.select("key", "partition", F.col("value").alias("held"))
    kind = (
        F.when(F.col("rows").isNull(), Kind.DELETED.value)
        .when(F.col("held").isNull(), Kind.NEW.value)
        .when(F.col("held") == F.col("value"), Kind.UNCHANGED.value)
        .otherwise(Kind.CHANGED.value)
    )
    joined = said.join(there, "key", "full_outer" if sync else "left_outer")
    return joined.select("key", "value", "partition", kind.alias("kind"), "rows")


def plan_of(found: DataFrame) -> Plan:
    """Returns the numbers of a difference.

    Raises:
        TableRefused: a row has no key or no value, or two have the same key; the message has one.
    """
    size = F.length("key") + F.coalesce(F.length("value"), F.lit(0))
    summed = found.groupBy("kind").agg(
        F.count(F.lit(1)).alias("keys"),
        F.sum(size).alias("size"),
        F.sum(F.when(F.col("key").isNull(), F.col("rows"))).alias("keyless"),
        F.max_by("key", "rows").alias("most"),
        F.max("rows").alias("rows"),
        F.max(F.when(F.col("value").isNull(), F.col("key"))).alias("valueless"),
    )
    lines = {Kind(line["kind"]): line for line in summed.collect()}
    for kind, line in lines.items():
        if line["keyless"]:
            raise TableRefused(f"rows without a key: {line['keyless']}")
        if kind is not Kind.DELETED and line["valueless"] is not None:
            raise TableRefused(
                f"the value of the key {text(line['valueless'])} is null, which would delete it:"
                " leave such rows out by --where, and delete their keys by --sync"
            )
        if (line["rows"] or 0) > 1:
            raise TableRefused(f"several rows have the key {text(line['most'])}: {line['rows']}")
    return Plan(
        counts={kind: lines[kind]["keys"] if kind in lines else 0 for kind in Kind},
        bytes_count=sum(line["size"] or 0 for kind, line in lines.items() if kind in WRITTEN),
    )


def text(key: bytes) -> str:
    """Returns a key for a message."""
    return repr(bytes(key[:100]))[1:]

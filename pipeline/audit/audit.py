"""Checks whether a cleaned log is still the same table as its original, on Spark.

What must hold, for each partition and the compared offsets [start, end):

    every record of the cleaned log is, at its offset, the original's      else CHANGED, MOVED, FOREIGN
    those that were moved are in order                                     else REORDERED
    the last value of a key is present                                     else LOST
    and is its last record                                                 else REVIVED
    a last tombstone is present, unless its retention may be over          else EARLY

A key's last record is the one of the highest rank by the topic's strategy (`pipeline/source/ranks.py`).
A cleaned log may continue beyond `end`: a key with a record there that outranks those below it may have
lost them. With versions the same holds for a record below `start`, in either log. About a tombstone's
retention only this is certain: a pass keeps it for delete.retention.ms from the pass's first contact
with it, which is not before its append, and the timestamp gives the append's time.

Records without a key do not count: compaction may drop them. The input must not contain records of
aborted transactions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from pipeline.audit.span import Span
from pipeline.source.ranks import rank_of
from pipeline.source.record_hashes import CONTENT, ROW, digest_of_limbs, hashed, limb_sums
from storage.formats.compaction_strategy import BY_OFFSET, CompactionStrategy

WITHIN = "start <= offset AND offset < end"
"""The records that are compared."""


class Kind(enum.StrEnum):
    """The kind of fault of a record or a key in the cleaned log."""

    CHANGED = "changed"
    MOVED = "moved"
    REORDERED = "reordered"
    FOREIGN = "foreign"
    LOST = "lost"
    REVIVED = "revived"
    EARLY = "tombstone gone early"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One faulty record or key."""

    kind: Kind
    partition: int
    key: bytes
    original_offset: int | None
    """The original's offset of the moved or missing record, or of the key's last one."""
    cleaned_offset: int | None
    """The cleaned log's offset of the faulty record, or of the key's last one; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One side's totals for a partition."""

    records: int = 0
    """Number of records with a key."""
    keys: int = 0
    """Number of keys with a value."""
    digest: int = 0
    goes_on: bool = False
    """Whether it has records outside the span: its digest may lack records that these supersede."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """The comparison of one partition."""

    partition: int
    span: Span
    original: Table
    cleaned: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit."""

    partitions: tuple[PartitionAudit, ...]
    counts: Mapping[Kind, int]
    """The number of all differences by kind; empty if there are none."""
    differences: tuple[Difference, ...]
    """The first differences."""

    @property
    def is_same(self) -> bool:
        return not self.counts


def audit(
    session: SparkSession,
    original: DataFrame,
    cleaned: DataFrame,
    spans: Mapping[int, Span],
    *,
    strategy: CompactionStrategy = BY_OFFSET,
    horizon_ms: Callable[[], int],
    differences_max: int,
) -> Audit:
    """Compare the committed records of two logs, which have the columns of Spark's Kafka source.

    Args:
        spans: the partitions and offsets to compare. Records of `cleaned` beyond a span's end only
            excuse missing records below it.
        strategy: how the records of a key are ranked, in both logs.
        horizon_ms: called once the cleaned log was read: returns now - delete.retention.ms. Tombstones
            with a later timestamp must still exist.
        differences_max: bound on the listed differences, in offset order; all are counted.
    """
    bounds = F.broadcast(spans_frame(session, spans))
    # By offset no record below the start outranks one above it.
    reached = "true" if strategy.has_versions else "start <= offset"
    before = (
        hashed(original, strategy).join(bounds, "partition").where(f"{reached} AND offset < end")
    )
    after = hashed(cleaned, strategy).join(bounds, "partition").where(reached)
    with ExitStack() as kept:
        before, after = keep(kept, before), keep(kept, after)
        sides = keep(kept, last_records(before)), keep(kept, last_records(after))
        partitions = partition_audits(*sides, spans)
        wrong = keep(kept, wrong_records(before.where(WITHIN), after.where(WITHIN)))
        keys = wrong_keys(*sides, wrong, horizon_ms())
        found = keep(kept, wrong.unionByName(keys))
        return Audit(
            partitions=partitions,
            counts=counted(found),
            differences=listed(found, differences_max),
        )


def keep(kept: ExitStack, frame: DataFrame) -> DataFrame:
    """Returns the frame, cached until the end of the context."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    kept.callback(frame.unpersist)
    return frame


def spans_frame(session: SparkSession, spans: Mapping[int, Span]) -> DataFrame:
    rows = [(partition, span.start, span.end) for partition, span in spans.items()]
    return session.createDataFrame(rows, "partition INT, start BIGINT, end BIGINT")


def wrong_records(original: DataFrame, cleaned: DataFrame) -> DataFrame:
    """Returns records of the cleaned log that the original does not have, or has at another offset."""
    there = ["partition", "offset"]
    strange = cleaned.join(original, [*there, *CONTENT], "left_anti")
    at_offset = original.select(*there, F.col("key").alias("key_there"))
    elsewhere = original.groupBy("partition", *CONTENT).agg(F.min("offset").alias("moved_from"))
    found = strange.join(at_offset, there, "left").join(elsewhere, ["partition", *CONTENT], "left")
    return found.select(
        kind_of_wrong_record().alias("kind"),
        "partition",
        "key",
        F.coalesce("moved_from", F.when(is_changed(), F.col("offset"))).alias("original_offset"),
        F.col("offset").alias("cleaned_offset"),
    )


def is_changed() -> Column:
    return F.col("key_there") == F.col("key")


def kind_of_wrong_record() -> Column:
    """Returns the kind of fault of a record that the original does not have at its offset."""
    moved = Window.partitionBy("partition", F.col("moved_from").isNotNull()).orderBy("offset")
    before = F.max("moved_from").over(moved.rowsBetween(Window.unboundedPreceding, -1))
    behind = F.min("moved_from").over(moved.rowsBetween(1, Window.unboundedFollowing))
    is_reordered = (before > F.col("moved_from")) | (behind < F.col("moved_from"))
    return (
        F.when(F.col("moved_from").isNotNull() & is_reordered, Kind.REORDERED.value)
        .when(F.col("moved_from").isNotNull(), Kind.MOVED.value)
        .when(is_changed(), Kind.CHANGED.value)
        .otherwise(Kind.FOREIGN.value)
    )


def wrong_keys(
    original: DataFrame, cleaned: DataFrame, wrong: DataFrame, horizon_ms: int
) -> DataFrame:
    """Returns keys whose last record is missing, except if a wrong record has taken its place."""
    by_key = ["partition", "key"]
    last = original.where("offset IS NOT NULL").select(
        *by_key,
        F.struct(*rank_of(original)).alias("rank"),
        F.col("outside").alias("original_outside"),
        F.col("offset").alias("original_offset"),
        "is_tombstone",
        F.unix_millis("timestamp").alias("timestamp_ms"),
    )
    left = cleaned.select(*by_key, F.col("offset").alias("cleaned_offset"), "outside")
    told = wrong.select("partition", "cleaned_offset").distinct()
    is_outranked = F.greatest("outside", "original_outside") > F.col("rank")
    pairs = last.join(left, by_key, "left").where(~F.coalesce(is_outranked, F.lit(False)))
    return (
        pairs.join(told, ["partition", "cleaned_offset"], "left_anti")
        .select(kind_of_key(horizon_ms).alias("kind"), *by_key, "original_offset", "cleaned_offset")
        .where("kind IS NOT NULL")
    )


def kind_of_key(horizon_ms: int) -> Column:
    """Returns the kind of fault of a key, or null, by its last record in both logs.

    If the cleaned log has another last record, the original's outranks it: one of a higher rank, which
    the original does not have, would be a wrong record.
    """
    is_gone = F.col("cleaned_offset").isNull()
    is_young = F.col("timestamp_ms") > F.lit(horizon_ms)
    return (
        F.when(F.col("cleaned_offset") != F.col("original_offset"), Kind.REVIVED.value)
        .when(is_gone & ~F.col("is_tombstone"), Kind.LOST.value)
        .when(is_gone & is_young, Kind.EARLY.value)
    )


def last_records(records: DataFrame) -> DataFrame:
    """Returns the last record of each key within its span, including tombstones, with the number of its
    records in the span, and the highest rank outside (then it may have none in the span)."""
    is_within, rank = F.expr(WITHIN), rank_of(records)
    fields = F.struct(*rank, "timestamp", "is_tombstone", *ROW)
    grouped = records.groupBy("partition", "key").agg(
        F.max(F.when(is_within, fields)).alias("last"),
        F.count_if(is_within).alias("records"),
        F.max(F.when(~is_within, F.struct(*rank))).alias("outside"),
    )
    return grouped.select("partition", "key", "records", "outside", "last.*")


def partition_audits(
    original: DataFrame, cleaned: DataFrame, spans: Mapping[int, Span]
) -> tuple[PartitionAudit, ...]:
    before, after = tables(original), tables(cleaned)
    return tuple(
        PartitionAudit(
            partition=partition,
            span=span,
            original=before.get(partition, Table()),
            cleaned=after.get(partition, Table()),
        )
        for partition, span in sorted(spans.items())
    )


def tables(last: DataFrame) -> dict[int, Table]:
    """Returns each partition's totals from its last records."""
    has_value = ~F.col("is_tombstone")
    rows = last.groupBy("partition").agg(
        F.sum("records").alias("records"),
        F.count_if(has_value).alias("keys"),
        F.bool_or(F.col("outside").isNotNull()).alias("goes_on"),
        *limb_sums(has_value),
    )
    return {row["partition"]: table_of(row) for row in rows.collect()}


def table_of(row: Any) -> Table:
    limbs = [row[f"limb_{number}"] for number in range(4)]
    return Table(
        records=row["records"],
        keys=row["keys"],
        digest=digest_of_limbs(limbs),
        goes_on=row["goes_on"],
    )


def counted(found: DataFrame) -> dict[Kind, int]:
    return {Kind(row["kind"]): row["count"] for row in found.groupBy("kind").count().collect()}


def listed(found: DataFrame, count: int) -> tuple[Difference, ...]:
    place = F.coalesce("cleaned_offset", "original_offset")
    rows: Iterable[Any] = found.orderBy("partition", place, "kind").limit(count).collect()
    return tuple(
        Difference(
            kind=Kind(row["kind"]),
            partition=row["partition"],
            key=bytes(row["key"]),
            original_offset=row["original_offset"],
            cleaned_offset=row["cleaned_offset"],
        )
        for row in rows
    )

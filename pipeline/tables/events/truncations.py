"""Applies truncations: a table of the database has lost all its rows at once (TRUNCATE).

Debezium says so in one event with `op=t` and without a key, if its connector does not leave such events
out (`skipped.operations=none`). Compacted topics refuse a record without a key, so the topic's policy is
`delete`. An event stands for a deletion of each key that has a row: a tombstone at the event's offset.

A record without a key goes to any partition, and partitions have no order among them. So only the rows
of a topic with one partition can be truncated.

Source: Debezium's documentation of its PostgreSQL connector, "truncate events".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleaner.rules.text import count_text
from pipeline.offsets.cut import Cut, TableRefused
from pipeline.spark.detached import detached
from pipeline.tables.events.event_rows import TRUNCATES, with_op
from pipeline.tables.formats.column_names import VALID_TO_OFFSET
from pipeline.tables.latest import RECORD_KEY, record_key
from pipeline.tables.payload import DELETES
from pipeline.tables.payload_options import OnTruncate, Payload
from pipeline.tables.wire_columns import NO_SCHEMA

OP = "_op"
AT = "topic STRING, partition INT, offset BIGINT, micros BIGINT"


@dataclass(frozen=True, slots=True)
class Truncation:
    """One event: where it stands, and its timestamp in microseconds since 1970 in UTC."""

    topic: str
    partition: int
    offset: int
    micros: int

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}, offset {self.offset}"


def truncations_in(records: DataFrame, payload: Payload, known: Cut) -> Sequence[Truncation]:
    """Returns the truncations among records, in order. Reads all records, if any could be one.

    Args:
        known: offsets of all partitions of the topics.

    Raises:
        TableRefused: there is one, and the job is to end then; or its topic has several partitions.
    """
    keyless = records.where(F.col("key").isNull())
    if not payload.looks_for_truncations or keyless.isEmpty():
        return ()
    read = with_op(keyless, payload, OP).where(F.col("value").isNotNull())
    rows = (
        read.where((F.col(OP) == TRUNCATES) | F.col(NO_SCHEMA).isNotNull())
        .select("topic", "partition", "offset", F.unix_micros("timestamp"), NO_SCHEMA)
        .orderBy("topic", "partition", "offset")
        .collect()
    )
    found = [Truncation(*row[:4]) for row in rows]
    for each, row in zip(found, rows, strict=True):
        if row[NO_SCHEMA] is not None:
            raise TableRefused(
                f"{each.place}: the record has no key, and whether it is a truncation is not known:"
                f" {row[NO_SCHEMA]}"
            )
        refuse_unless_applied(each, payload, len(known.offsets.get(each.topic, {})))
    return found


def refuse_unless_applied(event: Truncation, payload: Payload, partitions: int) -> None:
    """Raise TableRefused if a truncation cannot change the table, or is not to."""
    place = event.place
    if payload.on_truncate is not OnTruncate.APPLY:
        raise TableRefused(
            f"{place}: the database's table was truncated: --on-truncate apply deletes its rows"
        )
    if partitions > 1:
        have = count_text(partitions, "partition")
        raise TableRefused(
            f"{place}: the database's table was truncated, but its topic has {have}, so the order of"
            " this event and those in other partitions is not known: let the topic have one, or write"
            " the table from a topic with a new snapshot"
        )


def without_truncations(records: DataFrame, events: Sequence[Truncation]) -> DataFrame:
    """Returns the records without these events."""
    if not events:
        return records
    return records.join(
        F.broadcast(places_of(records, events)), ["topic", "partition", "offset"], "left_anti"
    )


def with_truncated_keys(
    parsed: DataFrame,
    events: Sequence[Truncation],
    table: DataFrame | None,
    payload: Payload,
) -> DataFrame:
    """Add a tombstone at each truncation for each key that may have a row then.

    Args:
        parsed: the parsed records of a micro-batch, the last one of each key or all.
        table: the rows that the table has, with the columns that it will have (`Table.fitting`); None
            without a table.
    """
    if not events:
        return parsed
    keys = parsed.select(*RECORD_KEY)
    known = keys if table is None else keys.unionByName(keys_held(table, payload.key_column))
    ends = known.distinct().join(F.broadcast(places_of(parsed, events)), ["topic", "partition"])
    tombstones = ends.select(
        *RECORD_KEY,
        "offset",
        F.timestamp_micros("micros").alias("timestamp"),
        F.lit(True).alias(DELETES),
    )
    joined = parsed.unionByName(tombstones, allowMissingColumns=True)
    if payload.reads_all_of_a_key:
        return joined
    last = joined.groupBy(*RECORD_KEY).agg(F.max_by(F.struct("*"), "offset").alias("last"))
    return last.select("last.*")


def places_of(records: DataFrame, events: Sequence[Truncation]) -> DataFrame:
    rows = [(each.topic, each.partition, each.offset, each.micros) for each in events]
    return records.sparkSession.createDataFrame(rows, AT)


def keys_held(table: DataFrame, key_column: str) -> DataFrame:
    """Returns the keys that have a row in the table, with topic and partition."""
    if VALID_TO_OFFSET in table.columns:
        table = table.where(F.col(VALID_TO_OFFSET).isNull())
    return detached(table.select(*record_key(key_column)))

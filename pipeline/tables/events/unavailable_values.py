"""Fills in the values that the database did not send because they had not changed.

In the place of such a value an event has a placeholder (`placeholders.py`). It is that of an earlier
event of the key: of one in the same micro-batch, or of the row that the table has. That is right only
if no event in between is missing, which may have had another value. Offsets without a record tell: a
pass has removed them, or they are markers of transactions, which no reader can tell apart. After such a
gap a record that needs an earlier value cannot become a row.

    _gap       the offset after the last gap before a record; null if there is none
    _unsent    the names of the columns that have a placeholder
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.spark.detached import detached
from pipeline.tables.events.gaps import GAP
from pipeline.tables.latest import RECORD_KEY, record_key
from pipeline.tables.payload import DELETES, PARSED, UNSENT, WHY, value_columns

LAST, FOUND, DELETED_AT, REFUSED, HELD = "_last", "_found", "_deleted_at", "_refused", "_held"


def with_available_values(parsed: DataFrame, table: DataFrame | None, key_column: str) -> DataFrame:
    """Returns the last record of each key, whose row has the earlier values where it has placeholders.

    A record whose value cannot be filled in, or that follows one of its key that could not be parsed,
    gets a reason in `_why`.

    Args:
        parsed: all records of each key, with `_gap` and `_unsent`.
        table: the rows that the table has; None without a table.
    """
    names = value_columns(parsed)
    folded = with_held_row(fold(parsed, names), table, key_column)
    filled = folded.select(
        f"{LAST}.*",
        F.struct(*(value_of(name, folded).alias(name) for name in names)).alias("_row"),
        F.coalesce(*(why_not(name, folded) for name in names)).alias("_why_not"),
        REFUSED,
    )
    needs_any = F.size(UNSENT) > 0
    why = F.coalesce(F.col(WHY), F.when(needs_any, F.coalesce(F.col(REFUSED), F.col("_why_not"))))
    row = F.when(F.col(PARSED).isNotNull() & F.col(WHY).isNull(), F.col("_row"))
    return (
        filled.withColumn(WHY, why)
        .withColumn(PARSED, row)
        .drop("_row", "_why_not", REFUSED, UNSENT, GAP)
    )


def fold(parsed: DataFrame, names: list[str]) -> DataFrame:
    """Returns for each key its last record, and for each column the last value that was sent."""
    offset = F.col("offset")
    has_row = F.col(PARSED).isNotNull()
    last_sent = [
        F.max_by(
            F.struct(offset.alias("offset"), F.col(f"{PARSED}.`{name}`").alias("value")),
            F.when(has_row & ~F.array_contains(UNSENT, name), offset),
        ).alias(name)
        for name in names
    ]
    folded = parsed.groupBy(*RECORD_KEY).agg(
        F.max_by(F.struct("*"), offset).alias(LAST),
        F.max(F.when(F.col(DELETES), offset)).alias(DELETED_AT),
        F.max_by(WHY, F.when(F.col(WHY).isNotNull(), offset)).alias(REFUSED),
        *(each.alias(f"{FOUND}{at}") for at, each in enumerate(last_sent)),
    )
    found = F.struct(*(F.col(f"{FOUND}{at}").alias(name) for at, name in enumerate(names)))
    return folded.withColumn(FOUND, found)


def with_held_row(folded: DataFrame, table: DataFrame | None, key_column: str) -> DataFrame:
    """Add the row that the table has of a key that needs it, as a struct of those columns it has in the
    same type; null if there is none."""
    types = {field.name: field.dataType for field in folded.schema[FOUND].dataType.fields}
    columns: list[str] = []
    if table is not None:
        columns = [
            each.name
            for each in table.schema.fields
            if each.name in types and types[each.name]["value"].dataType == each.dataType
        ]
    if table is None or not columns:
        return folded.withColumn(HELD, F.lit(None).cast("struct<>"))
    needed = folded.where(F.size(f"{LAST}.{UNSENT}") > 0).select(*RECORD_KEY)
    rows = table.select(
        *record_key(key_column), F.struct(*(F.col(f"`{name}`") for name in columns)).alias(HELD)
    )
    held = detached(rows.join(F.broadcast(needed), list(RECORD_KEY)))
    return folded.join(held, list(RECORD_KEY), "left")


def value_of(name: str, folded: DataFrame) -> Column:
    """Returns the value of a column: as it was sent last, or as the table has it."""
    sent = F.col(f"{FOUND}.`{name}`.value")
    return F.when(was_sent(name), sent).otherwise(held(name, folded))


def why_not(name: str, folded: DataFrame) -> Column:
    """Returns why a column of the last record has no value, as a clause; null if it has one."""
    gap, sent_at = F.col(f"{LAST}.{GAP}"), F.col(f"{FOUND}.`{name}`.offset")
    is_complete = F.when(was_sent(name), gap.isNull() | (gap <= sent_at)).otherwise(gap.isNull())
    has_row = (
        F.col(HELD).isNotNull() & F.col(DELETED_AT).isNull() & F.lit(name in held_columns(folded))
    )
    is_known = is_complete & (was_sent(name) | has_row)
    says = (
        f"the database did not send the value of {name}, which had not changed, and the event with it"
        " may be missing: let it send whole rows (in PostgreSQL: REPLICA IDENTITY FULL)"
    )
    is_needed = F.array_contains(f"{LAST}.{UNSENT}", name)
    return F.when(is_needed & ~is_known, says)


def was_sent(name: str) -> Column:
    """Returns whether an event of the micro-batch, after the key's last deletion, has the value."""
    sent_at = F.col(f"{FOUND}.`{name}`.offset")
    return F.coalesce(sent_at > F.coalesce(F.col(DELETED_AT), F.lit(-1)), F.lit(False))


def held(name: str, folded: DataFrame) -> Column:
    return F.col(f"{HELD}.`{name}`") if name in held_columns(folded) else F.lit(None)


def held_columns(folded: DataFrame) -> list[str]:
    names: list[str] = folded.schema[HELD].dataType.names
    return names

"""The records of one table of a database, in a topic with those of several (`source_table.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.tables.row_refusal import only_if
from pipeline.tables.source_table import (
    BOOTSTRAPS,
    NO_PRIMARY_KEY,
    NOT_MAXWELLS,
    SCHEMA_CHANGES,
    SourceTable,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `source_table.is_row_of` says of a record, as columns."""

    may_be_row: Column
    """Whether the record is a row of the table, or its key does not say."""
    why_not: Column
    """Why the key does not say which row it is, as a clause; null if it does."""


def records_of_table(records: DataFrame, table: SourceTable) -> DataFrame:
    """Returns the rows of a table. A record whose key does not say which row it is ends the job."""
    found = verdict(table)
    key = only_if(found.why_not.isNull(), F.col("key"), found.why_not)
    return records.where(found.may_be_row).withColumn("key", key)


def verdict(table: SourceTable) -> Verdict:
    """Returns what is decided of a record that has a key."""
    key = F.col("key").cast("string")
    database, name = either(key, "$.database", "$[0]"), either(key, "$.table", "$[1]")
    is_named = database.isNotNull() & name.isNotNull()
    in_array = F.coalesce(F.get_json_object(key, "$[2]"), F.lit("[]"))
    is_array = F.get_json_object(key, "$[0]").isNotNull()
    has_none = is_array & in_array.isin("[]", "{}")
    lacks_columns = has_none | F.get_json_object(key, "$._uuid").isNotNull()
    event_type = F.get_json_object(F.col("value").cast("string"), "$.type")
    is_change = F.coalesce(
        event_type.startswith(SCHEMA_CHANGES[0]) | event_type.startswith(SCHEMA_CHANGES[1]),
        F.lit(False),
    )
    is_bootstrap = F.coalesce(event_type.isin(*BOOTSTRAPS), F.lit(False))
    is_ours = F.when(~is_named, ~is_change).otherwise(
        (database == table.database) & (name == table.name) & ~(lacks_columns & is_bootstrap)
    )
    why_not = F.when(~is_named, NOT_MAXWELLS).when(lacks_columns, NO_PRIMARY_KEY)
    return Verdict(is_ours, why_not)


def either(text: Column, *paths: str) -> Column:
    return F.coalesce(*(F.get_json_object(text, path) for path in paths))

"""A history of values as a table: a row for each value that a key has had, and until when.

    _timestamp, _offset            of the record with the value: since when
    _valid_to, _valid_to_offset    of the key's next record; null in the row of the current value

A tombstone, or what else deletes a key, ends the last value and is no row. So at a moment T the table
was `_timestamp <= T AND (_valid_to > T OR _valid_to IS NULL)`, if timestamps rise with offsets, as they
do with `message.timestamp.type=LogAppendTime`; by offsets it is always so.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.formats.column_changes import ColumnChanges, altered
from pipeline.tables.formats.column_names import ENDS, TOMBSTONE, VALID_TO, VALID_TO_OFFSET
from pipeline.tables.formats.delta_table import DeltaTable
from pipeline.tables.formats.iceberg_table import IcebergTable
from pipeline.tables.formats.live_rows import live_rows
from pipeline.tables.formats.merge_clauses import ends_and_values
from pipeline.tables.formats.merged_table import MergedTable
from pipeline.tables.formats.table import IDENTITY


class History(MergedTable):
    """What a history does otherwise than a table of last values.

    It only grows: nothing can write it from the topic again.
    """

    __slots__ = ()

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Write the first rows, in one commit. Raises TableRefused: there is a table already."""
        if self.held() is not None:
            raise TableRefused(f"{self._place} is a table already")
        self._write(live_rows(with_ends(rows, self._layout.key_column)), cut)

    def fitting(self, rows: DataFrame) -> DataFrame:
        changed = changes(rows, self._layout.key_column).drop(ENDS)
        return altered(self.read(), self._changes(changed.schema))

    def _changes(self, rows: StructType) -> ColumnChanges:
        found = super()._changes(rows)
        if found.dropped:
            raise TableRefused(
                f"column {found.dropped[0]} is gone, and a history keeps the values that it had: write"
                " what follows to another path"
            )
        return found

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Add rows and end those before them, in one commit. Raises TableRefused."""
        if VALID_TO_OFFSET not in self.columns().names:
            raise TableRefused(
                f"{self._place} is a table of last values: write a history to another path"
            )
        changed = changes(rows, self._layout.key_column)
        columns = self._stored(changed).drop(ENDS).columns
        self._merge(changed, ENDS, ends_and_values(self._identity(), columns), cut)


class DeltaHistory(History, DeltaTable):
    """A history as a Delta table."""

    __slots__ = ()


class IcebergHistory(History, IcebergTable):
    """A history as an Iceberg table."""

    __slots__ = ()


def with_ends(rows: DataFrame, key_column: str) -> DataFrame:
    """Add `_valid_to` and `_valid_to_offset`, of the next row of the same key among these rows."""
    of_a_key = Window.partitionBy(*IDENTITY, key_column).orderBy("_offset")
    return rows.withColumn(VALID_TO, F.lead("_timestamp").over(of_a_key)).withColumn(
        VALID_TO_OFFSET, F.lead("_offset").over(of_a_key)
    )


def changes(rows: DataFrame, key_column: str) -> DataFrame:
    """Returns what new rows change of a history: rows to insert, and for each key one with `_ends`: its
    `_timestamp` and `_offset` end the value that the key has in the table.

    Args:
        rows: all new records of each key, those that delete it with `_tombstone`.
    """
    ended = with_ends(rows, key_column)
    first = F.min_by(F.struct("*"), "_offset").alias("first")
    ends = ended.groupBy(*IDENTITY, key_column).agg(first).select("first.*")
    ends = ends.withColumn(ENDS, F.lit(True))
    inserted = ended.where(~F.col(TOMBSTONE)).withColumn(ENDS, F.lit(False))
    return inserted.unionByName(ends).drop(TOMBSTONE)

"""The rows of a batch that delete nothing: those that a new table is written from."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.tables.formats.column_names import TOMBSTONE

ROW_NUMBER = "_row_number"


def live_rows(rows: DataFrame) -> DataFrame:
    """Returns the rows without `_tombstone`, and without those that it marks.

    Whether a row is a tombstone is known from its parsed value. Spark would move the condition to the
    records before that and parse there again, once for each place where the condition needs the value.
    It moves nothing below a column whose value it cannot repeat, such as a row's number.
    """
    numbered = rows.withColumn(ROW_NUMBER, F.monotonically_increasing_id())
    is_live = ~F.col(TOMBSTONE) & (F.col(ROW_NUMBER) >= 0)
    return numbered.where(is_live).drop(TOMBSTONE, ROW_NUMBER)

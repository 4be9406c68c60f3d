"""Selects columns and rows of a table by Spark SQL that the user has written.

Expressions see the columns of the value, the key and where a row comes from. A row for which the
condition is not true is no row of the table: a newer record that no longer fulfils it deletes its key.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.formats.column_names import ORIGIN, TOMBSTONE, UNPARSED, refuse_equal_names
from pipeline.tables.payload_options import Payload

SELECTED = "_selected"


def projected(rows: DataFrame, payload: Payload) -> DataFrame:
    """Returns the rows with the columns that are selected, and `_tombstone` where a row is not.

    Raises:
        TableRefused: an expression cannot be evaluated, or has no name.
    """
    if payload.where is not None:
        rows = _within(rows, payload.where)
    return _with_columns(rows, payload) if payload.select else rows


def _within(rows: DataFrame, condition: str) -> DataFrame:
    try:
        is_wanted = _unparsed(rows) | F.coalesce(F.expr(condition), F.lit(False))
        # An OR may be evaluated in any order, and a tombstone may end the job with a reason.
        is_dead = F.when(F.col(TOMBSTONE), F.lit(True)).otherwise(~is_wanted)
        return rows.withColumn(TOMBSTONE, is_dead)
    except (AnalysisException, Py4JJavaError) as error:
        raise TableRefused(f"--where {condition}: {cause(error)}") from error


def _with_columns(rows: DataFrame, payload: Payload) -> DataFrame:
    is_live = ~F.col(TOMBSTONE) & ~_unparsed(rows)
    try:
        # A struct allows nothing that makes several rows of one, or one of several.
        wanted = F.struct(*(F.expr(each) for each in payload.select))
        selected = rows.withColumn(SELECTED, F.when(is_live, wanted))
    except (AnalysisException, Py4JJavaError) as error:
        raise TableRefused(f"--select: {cause(error)}") from error
    names = selected.schema[SELECTED].dataType.names
    for name, text in zip(names, payload.select, strict=False):
        if re.fullmatch(r"col\d+", name) and name not in text.lower():
            raise TableRefused(f"--select {text}: give it a name, as in `{text} AS name`")
    kept = [name for name in rows.columns if name == UNPARSED]
    refuse_equal_names([payload.key_column, *names, *kept, *ORIGIN, TOMBSTONE])
    return selected.select(
        f"`{payload.key_column}`",
        *(F.col(f"{SELECTED}.`{name}`") for name in names),
        *kept,
        *ORIGIN,
        TOMBSTONE,
    )


def _unparsed(rows: DataFrame) -> Column:
    """Returns whether a row's value could not be parsed, and is kept so."""
    return F.col(UNPARSED).isNotNull() if UNPARSED in rows.columns else F.lit(False)

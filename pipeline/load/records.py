"""Makes a record of each row of a table: its key and its value, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from pipeline.load.formats import RecordFormat
from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause

AS_WRITTEN = {"ignoreNullFields": "false"}
"""Of `to_json`: a null is a null, and no missing field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShape:
    """Which columns of a row make its key and its value.

    Raises:
        TableRefused: the formats do not fit the columns.
    """

    key: Sequence[str]
    value: Sequence[str] = ()
    """All columns, if there are none."""
    key_format: RecordFormat = RecordFormat.TEXT
    value_format: RecordFormat = RecordFormat.JSON

    def __post_init__(self) -> None:
        for option, columns, written in (
            ("key", self.key, self.key_format),
            ("value", self.value, self.value_format),
        ):
            if written is RecordFormat.TEXT and len(columns) != 1:
                raise TableRefused(
                    f"--{option}-format text needs one column by --{option}; json takes any number"
                )


def records_of(rows: DataFrame, shape: RecordShape) -> DataFrame:
    """Returns a record, `key BINARY, value BINARY`, for each row. Both may be null.

    Raises:
        TableRefused: a column does not exist, or cannot be written in the format.
    """
    values = shape.value or rows.columns
    refuse_missing([*shape.key, *values], rows)
    key = written(rows, shape.key, shape.key_format)
    value = written(rows, values, shape.value_format)
    # A JSON object of nulls is text, but names nothing.
    is_key = reduce(or_, (quoted(name).isNotNull() for name in shape.key))
    try:
        return rows.select(F.when(is_key, key).alias("key"), value.alias("value"))
    except AnalysisException as error:
        raise TableRefused(cause(error)) from error


def written(rows: DataFrame, columns: Sequence[str], written_as: RecordFormat) -> Column:
    """Returns the bytes of these columns."""
    if written_as is RecordFormat.JSON:
        fields = F.struct(*(quoted(name) for name in columns))
        return F.encode(F.to_json(fields, AS_WRITTEN), "UTF-8")
    (name,) = columns
    if isinstance(rows.schema[name].dataType, BinaryType):
        return quoted(name)
    return F.encode(quoted(name).cast("string"), "UTF-8")


def quoted(name: str) -> Column:
    """Returns the column of this name, which may have any characters."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def refuse_missing(names: Sequence[str], rows: DataFrame) -> None:
    """Raise TableRefused if a name is none of a column."""
    missing = [name for name in names if name not in rows.columns]
    if missing:
        raise TableRefused(
            f"the table has no column {', '.join(dict.fromkeys(missing))}: it has"
            f" {', '.join(rows.columns)}"
        )

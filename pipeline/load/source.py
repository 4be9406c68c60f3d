"""Reads the table to load: Delta, Parquet, CSV or JSON lines, or a part of one in Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from pipeline.load.formats import SourceFormat
from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause

DEFAULTS: Mapping[SourceFormat, Mapping[str, str]] = {
    SourceFormat.CSV: {"header": "true", "mode": "FAILFAST"},
    SourceFormat.JSON: {"mode": "FAILFAST"},
}
"""Options of Spark's readers; a line that does not fit the schema ends the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToLoad:
    """A table, or what a user wants of it."""

    path: str
    source_format: SourceFormat
    schema: str | None = None
    """Of CSV and JSON, as `id BIGINT, name STRING`; None: all of CSV is text, JSON's is inferred."""
    options: Mapping[str, str] = field(default_factory=dict)
    """For Spark's reader."""
    select: Sequence[str] = ()
    where: str | None = None

    def rows(self, session: SparkSession) -> DataFrame:
        """Returns the wanted rows. Raises TableRefused: there are none such."""
        reader = session.read.format(self.source_format.value).options(
            **{**DEFAULTS.get(self.source_format, {}), **self.options}
        )
        try:
            if self.schema is not None:
                reader = reader.schema(self.schema)
            rows = reader.load(self.path)
            if self.where is not None:
                rows = rows.where(self.where)
            return rows.selectExpr(*self.select) if self.select else rows
        except (AnalysisException, ParseException, Py4JJavaError) as error:
            raise TableRefused(f"{self.path}: {cause(error)}") from error

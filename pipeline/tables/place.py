"""Where a table is, in which format, and what a session needs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.offsets.cut import TableRefused
from pipeline.spark.jars import DELTA, ICEBERG
from pipeline.spark.session_options import SessionOptions
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.options import TableFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Layout, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A table by its path or its name in a catalog."""

    path: str
    format: TableFormat
    catalog: Mapping[str, str] = field(default_factory=dict)
    """Properties of an Iceberg table's catalog."""

    def __post_init__(self) -> None:
        """Raises TableRefused: the table cannot have this name, or a catalog."""
        if self.format is TableFormat.ICEBERG:
            if self.path.count(".") < 2:
                raise TableRefused(
                    f"{self.path}: a table in Iceberg is named CATALOG.NAMESPACE.TABLE"
                )
        elif self.catalog:
            raise TableRefused("--catalog-property needs --format iceberg")

    def pins(self) -> list[Path]:
        """Returns the pins of the jars of its format."""
        match self.format:
            case TableFormat.DELTA:
                return [DELTA]
            case TableFormat.ICEBERG:
                return [ICEBERG]
            case TableFormat.PARQUET:
                return []

    def session_options(self, options: SessionOptions) -> SessionOptions:
        """Returns the options of a session that knows the table's catalog; the user's `--conf` wins."""
        if self.format is not TableFormat.ICEBERG:
            return options
        catalog = f"spark.sql.catalog.{self.path.partition('.')[0]}"
        own = {f"{catalog}.{name}": value for name, value in self.catalog.items()}
        ours = {catalog: "org.apache.iceberg.spark.SparkCatalog", **own}
        return replace(options, conf={**ours, **options.conf})

    def table(
        self, session: SparkSession, layout: Layout, evolution: Evolution, *, is_history: bool
    ) -> Table:
        """Returns the table. Raises TableRefused: it cannot be a history."""
        from pipeline.tables.formats.delta_table import DeltaTable
        from pipeline.tables.formats.history import DeltaHistory, IcebergHistory
        from pipeline.tables.formats.iceberg_table import IcebergTable
        from pipeline.tables.formats.parquet_table import ParquetTable

        match self.format:
            case TableFormat.DELTA:
                delta = DeltaHistory if is_history else DeltaTable
                return delta(session, self.path, layout, evolution)
            case TableFormat.ICEBERG:
                iceberg = IcebergHistory if is_history else IcebergTable
                return iceberg(session, self.path, layout, evolution)
            case TableFormat.PARQUET:
                if is_history:
                    raise TableRefused("--history needs --format delta or iceberg")
                return ParquetTable(session, self.path, layout, evolution)

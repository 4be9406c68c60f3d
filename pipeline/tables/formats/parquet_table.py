"""A Parquet table that knows which offsets it holds. Each change rewrites it and switches to the result.

Readers open `<table>/current` (see `versioned_folder.py`). The offsets and the columns are stored beside
the files, because Parquet folders do not keep the types of partition columns.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.formats.column_changes import altered, changes_of
from pipeline.tables.formats.column_names import TOMBSTONE
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.formats.live_rows import live_rows
from pipeline.tables.formats.table import DEFAULT_LAYOUT, IDENTITY, Layout, TableSize
from pipeline.tables.formats.versioned_folder import VersionedFolder


class ParquetTable:
    """The table at `path`, on a local file system."""

    __slots__ = ("_evolution", "_folder", "_layout", "_session")

    def __init__(
        self,
        session: SparkSession,
        path: str,
        layout: Layout = DEFAULT_LAYOUT,
        evolution: Evolution = Evolution.STRICT,
    ) -> None:
        if "://" in path:
            raise TableRefused(f"{path}: a Parquet table lies on a local file system; use Delta")
        self._session = session
        self._folder = VersionedFolder(Path(path.removeprefix("file:")))
        self._layout = layout
        self._evolution = evolution

    @property
    def current(self) -> Path:
        """The path that readers open."""
        return self._folder.current

    def held(self) -> Cut | None:
        """Returns the offsets that the table holds; None if there is no table.

        Raises:
            TableRefused: the folder holds something else.
        """
        cut = held_by_folder(self._folder)
        if cut is None and not self._folder.is_vacant():
            raise TableRefused(f"{self._folder.path} holds other data than one of our tables")
        return cut

    def columns(self) -> StructType:
        return StructType.fromJson(json.loads(self._folder.label() or "")["columns"])

    def read(self) -> DataFrame:
        """Returns the rows of the current version."""
        folder = str(self._folder.current.resolve())
        return self._session.read.schema(self.columns()).parquet(folder)

    def size(self) -> TableSize:
        sizes = [each.stat().st_size for each in self.current.resolve().rglob("*.parquet")]
        return TableSize(len(sizes), sum(sizes))

    def fitting(self, rows: DataFrame) -> DataFrame:
        before, layout = self.read(), self._layout
        changes = changes_of(
            before.schema,
            rows.drop(TOMBSTONE).schema,
            self._evolution,
            layout.former_names,
            layout.key_column,
        )
        return altered(before, changes)

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Replace all rows with these. Raises TableRefused."""
        self.held()
        live = live_rows(rows)
        writer = live.write.partitionBy(*self._layout.partition_by)
        writer = writer.options(**self._layout.write_options)
        label = json.loads(cut.to_json()) | {"columns": live.schema.jsonValue()}
        self._folder.publish(lambda folder: writer.parquet(str(folder)), json.dumps(label))

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Merge newer records into the table. Raises TableRefused."""
        held = self.fitting(rows).withColumn(TOMBSTONE, F.lit(False))
        both = held.unionByName(rows, allowMissingColumns=True)
        self.replace(newest(both, self._layout.key_column), cut)

    def compact(self, retain_hours: int | None) -> None:
        """Do nothing: each change rewrites the whole table, so no small files are left."""

    def confirm(self) -> None:
        """Do nothing: no other program writes here, so the offsets cannot be lost."""


def held_by_folder(folder: VersionedFolder) -> Cut | None:
    """Returns the offsets that a Parquet table holds; without Spark."""
    return Cut.from_json(folder.label())


def newest(rows: DataFrame, key_column: str) -> DataFrame:
    """Returns the row with the highest offset of each key of each partition."""
    identity = (*IDENTITY, key_column)
    last = F.max_by(F.struct(*(F.col(f"`{name}`") for name in rows.columns)), "_offset")
    grouped = rows.groupBy(*identity).agg(last.alias("last"))
    return grouped.select("last.*")

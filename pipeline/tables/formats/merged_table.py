"""A table that Spark's MERGE changes, with the offsets that it holds: what Delta and Iceberg share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.formats.column_changes import ColumnChanges, altered, changes_of
from pipeline.tables.formats.column_names import TOMBSTONE, VALID_TO_OFFSET
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.formats.live_rows import live_rows
from pipeline.tables.formats.merge_clauses import newer_records
from pipeline.tables.formats.table import DEFAULT_LAYOUT, IDENTITY, Layout, TableSize

BATCH = "kompakt_batch"
"""The name of the view that holds the batch to merge."""


class MergedTable(ABC):
    """A table of last values."""

    __slots__ = ("_evolution", "_layout", "_place", "_seen", "_session")

    def __init__(
        self,
        session: SparkSession,
        place: str,
        layout: Layout = DEFAULT_LAYOUT,
        evolution: Evolution = Evolution.STRICT,
    ) -> None:
        """Open it. `place` is its path or its name in a catalog, as messages call it."""
        self._session = session
        self._place = place
        self._layout = layout
        self._evolution = evolution
        self._seen: frozenset[str] = frozenset()
        """The columns that the table had at first, and those that come from here."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name in SQL."""

    @abstractmethod
    def held(self) -> Cut | None:
        """Returns the offsets that the table holds; None if there is no table.

        Raises:
            TableRefused: another program wrote the table, or it no longer has the offsets.
        """

    @abstractmethod
    def read(self) -> DataFrame:
        """Returns the current rows."""

    @abstractmethod
    def size(self) -> TableSize:
        """Returns the files of an existing table."""

    @abstractmethod
    def compact(self, retain_hours: int | None) -> None:
        """Rewrite small files as large ones; delete what only old versions need. Raises TableRefused."""

    def columns(self) -> StructType:
        return self.read().schema

    def fitting(self, rows: DataFrame) -> DataFrame:
        return altered(self.read(), self._changes(rows.drop(TOMBSTONE).schema))

    def _changes(self, rows: StructType) -> ColumnChanges:
        """Returns how the table's columns become those of these rows. Raises TableRefused."""
        layout = self._layout
        held = self.columns()
        self._seen = self._seen or frozenset(held.names)
        found = changes_of(held, rows, self._evolution, layout.former_names, layout.key_column)
        if late := sorted(set(found.dropped) - self._seen):
            raise TableRefused(
                f"another run has added column {late[0]} to {self._place} since this one began, and"
                " --value-schema lacks it: run the command again with the present schema"
            )
        return found

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Replace all rows with these, in one commit. Raises TableRefused: they are a history."""
        if self.held() is not None and VALID_TO_OFFSET in self.columns().names:
            raise TableRefused(
                f"{self._place} is a history, which the topic may no longer have: write the table of"
                " last values to another path"
            )
        self._write(live_rows(rows), cut)

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Update, insert and delete rows by newer records, in one commit. Raises TableRefused."""
        columns = self._stored(rows).drop(TOMBSTONE).columns
        self._merge(rows, TOMBSTONE, newer_records(self._identity(), columns), cut)

    @abstractmethod
    def _write(self, live: DataFrame, cut: Cut) -> None:
        """Make these rows the whole table, in one commit. Raises TableRefused."""

    @abstractmethod
    def _alter(self, changes: ColumnChanges) -> None:
        """Rename, widen and drop columns; the table keeps its rows and offsets. Raises TableRefused."""

    @abstractmethod
    def _committing(self, session: SparkSession, cut: Cut) -> AbstractContextManager[None]:
        """Store `cut` in the commit that the session makes within this context, even without rows.

        Raises:
            TableRefused: another commit came in between.
        """

    def _stored(self, rows: DataFrame) -> DataFrame:
        """Returns the rows with the names that their columns have in the table."""
        return rows

    def _identity(self) -> tuple[str, ...]:
        """Returns the columns in the table that identify a row."""
        return (*IDENTITY, self._layout.key_column)

    def _merge(self, batch: DataFrame, flag: str, clauses: str, cut: Cut) -> None:
        """Run the MERGE of these clauses, in one commit. Raises TableRefused.

        Columns that change besides new ones do so in a commit before it: a crash between the two leaves
        the table as it was, with other columns.

        Args:
            batch: the rows `s`, with the columns of the table and one besides, named by `flag`.
        """
        changes = self._changes(batch.drop(flag).schema)
        if changes.alters:
            self._alter(changes)
        self._seen |= {*changes.renamed.values(), *changes.added}
        evolving = " WITH SCHEMA EVOLUTION" if changes.added else ""
        self._stored(batch).createOrReplaceTempView(BATCH)
        with self._committing(batch.sparkSession, cut):
            batch.sparkSession.sql(
                f"MERGE{evolving} INTO {self.name} AS t USING {BATCH} AS s {clauses}"
            )


def written_by_another(place: str) -> TableRefused:
    """Returns the error for a commit before which another one came in."""
    return TableRefused(
        f"another program wrote {place} at the same moment; "
        "run the command again: it continues from what the table holds now"
    )

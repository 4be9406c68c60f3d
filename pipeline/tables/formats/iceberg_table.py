"""An Iceberg table that knows which offsets it holds, by Iceberg's runtime for Spark.

The summary of each of our snapshots has the offsets, in `kompakt.offsets`, as in a table that
`kompakt export` writes: rows and offsets change in one commit. Others may commit in between
(`rewrite_data_files`, `expire_snapshots`, a rollback): the table's offsets are those of the newest of
our snapshots among the current one and its ancestors. Columns are added, and change, in commits before
that of the rows, which make no snapshot; a table that a crash leaves between two of them is complete.

`_partition` is a column that Iceberg itself adds to what Spark reads of a table, and a table whose own
column has that name cannot be merged into, so the partition of the topic is called `_topic_partition`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.offsets.cut import REWRITE_HINT, Cut, TableRefused
from pipeline.spark.job import cause
from pipeline.tables.formats.column_changes import ColumnChanges, widened_paths
from pipeline.tables.formats.column_names import TOPIC_PARTITION
from pipeline.tables.formats.merge_clauses import quoted, quoted_name
from pipeline.tables.formats.merged_table import MergedTable, written_by_another
from pipeline.tables.formats.table import TableSize

COMMIT_OFFSETS = "spark.sql.iceberg.snapshot-property.kompakt.offsets"
OFFSETS = "kompakt.offsets"
PROPERTIES = {
    "format-version": "2",
    # A stream's small batches would each rewrite the files of all the keys that they have.
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
"""The properties of a new table, below those of the user."""
REWRITES = {
    # By default few small files stay as they are, and so does a data file with any number of deletes.
    "min-input-files": "2",
    "delete-file-threshold": "1",
    "remove-dangling-deletes": "true",
}
"""The options with which data files are rewritten."""
ROWS = "kompakt_rows"
"""The name of the view that holds the rows of a new table."""
CONFLICTS = frozenset(
    {
        "org.apache.iceberg.exceptions.AlreadyExistsException",
        "org.apache.iceberg.exceptions.CommitFailedException",
        "org.apache.iceberg.exceptions.ValidationException",
    }
)


class IcebergTable(MergedTable):
    """The table `CATALOG.NAMESPACE.TABLE`, in a catalog of the session."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return ".".join(quoted(self._place.split(".")))

    def held(self) -> Cut | None:
        if not self._exists():
            return None
        for offsets in self._offsets_of_snapshots():
            if (cut := Cut.from_json(offsets)) is not None:
                return cut
        raise TableRefused(
            f"{self._place} has no snapshot that says which offsets it holds: another program wrote it,"
            " or the snapshot has expired"
        )

    def read(self) -> DataFrame:
        return self._session.table(self.name).withColumnRenamed(TOPIC_PARTITION, "_partition")

    def size(self) -> TableSize:
        files = self._session.table(f"{self.name}.files")
        (row,) = files.agg(F.count("*"), F.sum("file_size_in_bytes")).collect()
        return TableSize(row[0], row[1] or 0, file_target=512 << 20)

    def compact(self, retain_hours: int | None) -> None:
        options = ", ".join(literal(part) for pair in REWRITES.items() for part in pair)
        self._call("rewrite_data_files", f"options => map({options})")
        if retain_hours is not None:
            self.confirm()
            before = datetime.now(UTC) - timedelta(hours=retain_hours)
            self._call("expire_snapshots", f"older_than => TIMESTAMP '{before:%F %T.%f}Z'")

    def _call(self, procedure: str, arguments: str) -> None:
        """Run one of the catalog's procedures on this table. Raises TableRefused."""
        catalog, _, table = self._place.partition(".")
        with conflicts_refused(self._place):
            self._session.sql(
                f"CALL {quoted_name(catalog)}.system.{procedure}(table => {literal(table)}, {arguments})"
            )

    def confirm(self) -> None:
        """Repeat the table's offsets in an extra snapshot if others have committed since.

        Snapshots expire, but our last one must not.
        """
        cut = self.held()
        if cut is not None and Cut.from_json(self._offsets_of_snapshots()[0]) is None:
            nothing = self._session.table(self.name).limit(0)
            with self._committing(self._session, cut):
                nothing.writeTo(self.name).append()

    def _write(self, live: DataFrame, cut: Cut) -> None:
        session = live.sparkSession
        session.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")
        self._stored(live).createOrReplaceTempView(ROWS)
        properties = PROPERTIES | dict(self._layout.write_options)
        said = ", ".join(
            f"{literal(name)} = {literal(value)}" for name, value in properties.items()
        )
        with self._committing(session, cut):
            session.sql(
                f"CREATE OR REPLACE TABLE {self.name} USING iceberg {self._partitioned()}"  # noqa: S608
                f" TBLPROPERTIES ({said}) AS SELECT * FROM {ROWS}"
            )

    def _alter(self, changes: ColumnChanges) -> None:
        # First what Iceberg may refuse: a column that the table is partitioned by.
        for name in changes.dropped:
            self._change(f"DROP COLUMN {quoted_name(name)}")
        for old, new in changes.renamed.items():
            self._change(f"RENAME COLUMN {quoted_name(old)} TO {quoted_name(new)}")
        held = self.columns()
        for name, kind in changes.widened.items():
            for path, wider in widened_paths(held[name].dataType, kind, quoted_name(name)):
                self._change(f"ALTER COLUMN {path} TYPE {wider.simpleString()}")

    def _change(self, what: str) -> None:
        try:
            self._session.sql(f"ALTER TABLE {self.name} {what}")
        except (AnalysisException, Py4JJavaError) as error:
            raise TableRefused(f"{self._place}: {what}: {cause(error)}; {REWRITE_HINT}") from error

    def _partitioned(self) -> str:
        """Returns the clause for a new table: by columns, or by transforms such as `bucket(16, key)`."""
        by = [each if "(" in each else quoted([each])[0] for each in self._layout.partition_by]
        return f"PARTITIONED BY ({', '.join(by)})" if by else ""

    def _stored(self, rows: DataFrame) -> DataFrame:
        return rows.withColumnRenamed("_partition", TOPIC_PARTITION)

    def _identity(self) -> tuple[str, ...]:
        return ("_topic", TOPIC_PARTITION, self._layout.key_column)

    @contextlib.contextmanager
    def _committing(self, session: SparkSession, cut: Cut) -> Iterator[None]:
        session.conf.set(COMMIT_OFFSETS, cut.to_json())
        try:
            with conflicts_refused(self._place):
                yield
        finally:
            session.conf.unset(COMMIT_OFFSETS)

    def _exists(self) -> bool:
        """Returns whether the table exists, as of now: catalogs cache tables. Raises TableRefused."""
        try:
            if not self._session.catalog.tableExists(self.name):
                return False
        except AnalysisException as error:
            raise TableRefused(f"{self._place}: {error.getCondition()}") from error
        self._session.sql(f"REFRESH TABLE {self.name}")
        return True

    def _offsets_of_snapshots(self) -> list[str | None]:
        """Returns what the current snapshot and its ancestors say about offsets, newest first."""
        try:
            rows = self._session.sql(
                f"SELECT s.summary['{OFFSETS}'] AS offsets"  # noqa: S608
                f" FROM {self.name}.history AS h JOIN {self.name}.snapshots AS s USING (snapshot_id)"
                " WHERE h.is_current_ancestor ORDER BY h.made_current_at DESC"
            ).collect()
        except AnalysisException as error:
            raise TableRefused(f"{self._place} is not an Iceberg table") from error
        return [row["offsets"] for row in rows]


@contextlib.contextmanager
def conflicts_refused(place: str) -> Iterator[None]:
    """Raise TableRefused if another commit comes in before one that is made within this context."""
    try:
        yield
    except Py4JJavaError as error:
        if CONFLICTS.isdisjoint(classes_of(error)):
            raise
        raise written_by_another(place) from error


def classes_of(error: Py4JJavaError) -> set[str]:
    """Returns the classes of a Java exception and of its causes."""
    found = set()
    cause = error.java_exception
    while cause is not None:
        found.add(cause.getClass().getName())
        cause = cause.getCause()
    return found


def literal(text: str) -> str:
    """Returns a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

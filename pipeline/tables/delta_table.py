"""A Delta table that knows which offsets it holds.

Each of our commits stores them as `userMetadata`, so rows and offsets change in one commit, and
`DESCRIBE HISTORY` shows both. Others may commit in between (OPTIMIZE, VACUUM, RESTORE): the table's
offsets are those of the newest commit of ours in the history of the current version. SQL on the
table's path needs only Delta's jars; the Python package delta-spark would be one more version to keep
in step.

A stream reads the table's offsets before each commit. Of two streams that follow one topic into the
table, each continues from the other's last commit; if both commit at the same moment, Delta fails one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.column_names import TOMBSTONE, VALID_TO_OFFSET
from pipeline.tables.evolution import Evolution
from pipeline.tables.table import DEFAULT_LAYOUT, IDENTITY, Layout, columns_to_add

COMMIT_OFFSETS = "spark.databricks.delta.commitInfo.userMetadata"
SKIP_EMPTY = "spark.databricks.delta.skipRecordingEmptyCommits"
RECENT_COMMITS = 20
NO_TABLE = frozenset(
    {"DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_TABLE_ONLY_OPERATION"}
)
CONFLICTS = "io.delta.exceptions."
"""The package of exactly those exceptions that Delta raises if another commit came in between."""
BATCH = "kompakt_batch"
"""The name of the view that holds the batch to merge."""


class DeltaTable:
    """The table at `path`, on any file system that Spark can reach."""

    __slots__ = ("_evolution", "_layout", "_path", "_session")

    def __init__(
        self,
        session: SparkSession,
        path: str,
        layout: Layout = DEFAULT_LAYOUT,
        evolution: Evolution = Evolution.STRICT,
    ) -> None:
        self._session = session
        self._path = qualified(session, path)
        self._layout = layout
        self._evolution = evolution

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return f"delta.`{self._path.replace('`', '``')}`"

    def held(self) -> Cut | None:
        """Returns the offsets that the table holds; None if there is no table.

        Raises:
            TableRefused: another program wrote the table, or its log no longer has the offsets.
        """
        recent = self._history(RECENT_COMMITS)
        return self._cut_from(recent) if recent else None

    def columns(self) -> StructType:
        return self.read().schema

    def read(self) -> DataFrame:
        return self._session.read.format("delta").load(self._path)

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """Replace all rows with these, in one commit. Raises TableRefused: they are a history."""
        if self.held() is not None and VALID_TO_OFFSET in self.columns().names:
            raise TableRefused(
                f"{self._path} is a history, which the topic may no longer have: write the table of last"
                " values to another path"
            )
        self._write(rows.where(~F.col(TOMBSTONE)).drop(TOMBSTONE), cut)

    def _write(self, live: DataFrame, cut: Cut) -> None:
        writer = live.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        with self._committing(live.sparkSession, cut):
            writer.partitionBy(*self._layout.partition_by).options(
                **self._layout.write_options
            ).save(self._path)

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """Update, insert and delete rows by newer records, in one commit. Raises TableRefused."""
        columns = rows.drop(TOMBSTONE).columns
        self._merge(rows, TOMBSTONE, newer_records(self._layout.key_column, columns), cut)

    def _merge(self, batch: DataFrame, flag: str, clauses: str, cut: Cut) -> None:
        """Run the MERGE of these clauses, in one commit. Raises TableRefused.

        Args:
            batch: the rows `s`, with the columns of the table and one besides, named by `flag`.
        """
        new = columns_to_add(self.columns(), batch.drop(flag).schema, self._evolution)
        evolving = " WITH SCHEMA EVOLUTION" if new else ""
        batch.createOrReplaceTempView(BATCH)
        with self._committing(batch.sparkSession, cut):
            batch.sparkSession.sql(
                f"MERGE{evolving} INTO {self.name} AS t USING {BATCH} AS s {clauses}"
            )

    def confirm(self) -> None:
        """Repeat the table's offsets in an extra commit if others have committed since.

        Delta forgets old commits (`delta.logRetentionDuration`), but must not forget our last one.
        """
        recent = self._history(RECENT_COMMITS)
        if recent and Cut.from_json(recent[0].userMetadata) is None:
            nothing = self.read().limit(0)
            with self._committing(self._session, self._cut_from(recent)):
                nothing.write.format("delta").mode("append").save(self._path)

    @contextlib.contextmanager
    def _committing(self, session: SparkSession, cut: Cut) -> Iterator[None]:
        """Store `cut` in the commit that the session makes within this context, even without rows.

        Raises:
            TableRefused: another commit came in between.
        """
        session.conf.set(COMMIT_OFFSETS, cut.to_json())
        session.conf.set(SKIP_EMPTY, "false")
        try:
            with conflicts_refused(self._path):
                yield
        finally:
            session.conf.unset(COMMIT_OFFSETS)
            session.conf.unset(SKIP_EMPTY)

    def _cut_from(self, recent: Sequence[Row]) -> Cut:
        """Returns the offsets from the newest commits, or if these have none, from the whole log."""
        cut = cut_of(recent) or cut_of(self._history(None))
        if cut is None:
            raise TableRefused(
                f"{self._path} is a Delta table whose log does not say which offsets it holds: "
                "another program wrote it, or the commit is too long ago"
            )
        return cut

    def _history(self, commits: int | None) -> Sequence[Row]:
        """Returns the newest commits, newest first; none if there is no table."""
        limit = "" if commits is None else f" LIMIT {commits}"
        try:
            found = self._session.sql(f"DESCRIBE HISTORY {self.name}{limit}")
            wanted = found.select("version", "operation", "operationParameters", "userMetadata")
            return list(wanted.collect())
        except AnalysisException as error:
            if error.getCondition() in NO_TABLE:
                return []
            raise


@contextlib.contextmanager
def conflicts_refused(path: str) -> Iterator[None]:
    """Raise TableRefused if another commit comes in before one that is made within this context."""
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName().startswith(CONFLICTS):
            raise TableRefused(
                f"another program wrote {path} at the same moment; "
                "run the command again: it continues from what the table holds now"
            ) from error
        raise


def qualified(session: SparkSession, path: str) -> str:
    """Returns the path as Hadoop's file systems see it: SQL accepts no relative path for a table."""
    context = session.sparkContext
    given = context._jvm.org.apache.hadoop.fs.Path(path)
    files = given.getFileSystem(context._jsc.hadoopConfiguration())
    return str(files.makeQualified(given).toString())


def cut_of(commits: Sequence[Row]) -> Cut | None:
    """Returns the offsets of the current version from `commits`, newest first (pure).

    A RESTORE brings back an older version, together with its offsets.
    """
    below = None
    for commit in commits:
        if below is not None and commit.version > below:
            continue
        cut = Cut.from_json(commit.userMetadata)
        if cut is not None:
            return cut
        if commit.operation == "RESTORE":
            version = (commit.operationParameters or {}).get("version")
            if version is None:
                return None
            below = int(version)
    return None


def newer_records(key_column: str, columns: Sequence[str]) -> str:
    """Returns the clauses of a MERGE of last records; an older one never changes a newer row (pure)."""
    newer = "s._offset > t._offset"
    # With a `t.`, a column that is to be added would not be found.
    changes = ", ".join(f"{name} = s.{name}" for name in quoted(columns))
    return "\n".join(
        (
            f"ON {same_key(key_column)}",
            f"WHEN MATCHED AND {newer} AND s.{TOMBSTONE} THEN DELETE",
            f"WHEN MATCHED AND {newer} THEN UPDATE SET {changes}",
            f"WHEN NOT MATCHED AND NOT s.{TOMBSTONE} {then_insert(columns)}",
        )
    )


def same_key(key_column: str) -> str:
    """Returns the condition of a MERGE that both rows are of the same key."""
    return " AND ".join(f"t.`{name}` = s.`{name}`" for name in (*IDENTITY, key_column))


def then_insert(columns: Sequence[str]) -> str:
    """Returns the end of a MERGE's clause that inserts the batch's row."""
    names = quoted(columns)
    given = ", ".join(f"s.{name}" for name in names)
    return "\n".join((f"THEN INSERT ({', '.join(names)})", f"VALUES ({given})"))


def quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name.replace('`', '``')}`" for name in names]

"""A Delta table that knows which offsets it holds.

They are the `userMetadata` of each commit of ours, so rows and offsets change in one commit, and
`DESCRIBE HISTORY` shows both. Others may commit between (OPTIMIZE, VACUUM, RESTORE): the newest
commit of ours counts that the present version goes back to. SQL on the table's path needs nothing
but Delta's jars; the Python package delta-spark would be one more version to keep in step.

What the table holds is asked before each commit. Of two streams that follow one topic into it, each
goes on from what the other has left; where both commit at the same moment, Delta lets one of them fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.cut import Cut, TableRefused
from pipeline.payload import TOMBSTONE
from pipeline.table import DEFAULT_LAYOUT, IDENTITY, Layout, refuse_other_columns

COMMIT_OFFSETS = "spark.databricks.delta.commitInfo.userMetadata"
SKIP_EMPTY = "spark.databricks.delta.skipRecordingEmptyCommits"
RECENT_COMMITS = 20
NO_TABLE = frozenset(
    {"DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_TABLE_ONLY_OPERATION"}
)
CONFLICTS = "io.delta.exceptions."
"""The package of all that Delta raises where another commit came in between, and of nothing else."""
BATCH = "kompakt_batch"
"""The view that a batch is merged from."""


class DeltaTable:
    """The table at `path`, on any file system that Spark can reach."""

    __slots__ = ("_layout", "_path", "_session")

    def __init__(self, session: SparkSession, path: str, layout: Layout = DEFAULT_LAYOUT) -> None:
        self._session = session
        self._path = qualified(session, path)
        self._layout = layout

    @property
    def name(self) -> str:
        """In SQL."""
        return f"delta.`{self._path.replace('`', '``')}`"

    def held(self) -> Cut | None:
        """What the table holds; a table that was not written here is refused.

        Raises:
            TableRefused: it is another one's, or its log no longer says which offsets it holds.
        """
        recent = self._history(RECENT_COMMITS)
        return self._said_by(recent) if recent else None

    def columns(self) -> StructType:
        return self.read().schema

    def read(self) -> DataFrame:
        return self._session.read.format("delta").load(self._path)

    def replace(self, rows: DataFrame, cut: Cut) -> None:
        """One commit: these rows instead of all that were there."""
        live = rows.where(~F.col(TOMBSTONE)).drop(TOMBSTONE)
        writer = live.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        with self._committing(live.sparkSession, cut):
            writer.partitionBy(*self._layout.partition_by).options(
                **self._layout.write_options
            ).save(self._path)

    def merge(self, rows: DataFrame, cut: Cut) -> None:
        """One commit: rows that are newer replace, insert, or delete. Raises TableRefused."""
        refuse_other_columns(self.read().schema, rows.drop(TOMBSTONE).schema)
        columns = rows.drop(TOMBSTONE).columns
        statement = merge_statement(self.name, self._layout.key_column, columns)
        rows.createOrReplaceTempView(BATCH)
        with self._committing(rows.sparkSession, cut):
            rows.sparkSession.sql(statement)

    def confirm(self) -> None:
        """Say in a commit of its own what the table holds, where others have committed since.

        Delta forgets old commits (`delta.logRetentionDuration`), and ours must not be among them.
        """
        recent = self._history(RECENT_COMMITS)
        if recent and Cut.from_json(recent[0].userMetadata) is None:
            nothing = self.read().limit(0)
            with self._committing(self._session, self._said_by(recent)):
                nothing.write.format("delta").mode("append").save(self._path)

    @contextlib.contextmanager
    def _committing(self, session: SparkSession, cut: Cut) -> Iterator[None]:
        """Within, a commit of this session says `cut`, even if it changes no row.

        Raises:
            TableRefused: another commit came in between.
        """
        session.conf.set(COMMIT_OFFSETS, cut.to_json())
        session.conf.set(SKIP_EMPTY, "false")
        try:
            yield
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName().startswith(CONFLICTS):
                raise TableRefused(
                    f"somebody else has written {self._path} at the same moment; "
                    "typed again, the command goes on from what the table holds now"
                ) from error
            raise
        finally:
            session.conf.unset(COMMIT_OFFSETS)
            session.conf.unset(SKIP_EMPTY)

    def _said_by(self, recent: Sequence[Row]) -> Cut:
        """By the newest commits, or by all that the log has kept where these do not say it."""
        cut = cut_of(recent) or cut_of(self._history(None))
        if cut is None:
            raise TableRefused(
                f"{self._path} is a Delta table whose log does not say which offsets it holds: it "
                "was written by something else, or this was too long ago"
            )
        return cut

    def _history(self, commits: int | None) -> Sequence[Row]:
        """The newest commits, the newest first; none where there is no table."""
        limit = "" if commits is None else f" LIMIT {commits}"
        try:
            found = self._session.sql(f"DESCRIBE HISTORY {self.name}{limit}")
            wanted = found.select("version", "operation", "operationParameters", "userMetadata")
            return list(wanted.collect())
        except AnalysisException as error:
            if error.getCondition() in NO_TABLE:
                return []
            raise


def qualified(session: SparkSession, path: str) -> str:
    """As Hadoop's file systems see it: SQL takes no relative path for a table."""
    context = session.sparkContext
    given = context._jvm.org.apache.hadoop.fs.Path(path)
    files = given.getFileSystem(context._jsc.hadoopConfiguration())
    return str(files.makeQualified(given).toString())


def cut_of(commits: Sequence[Row]) -> Cut | None:
    """What the first of `commits`, the newest first, stands for (pure).

    A RESTORE brings back an older version, and what that one held.
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


def merge_statement(table: str, key_column: str, columns: Sequence[str]) -> str:
    """MERGE of the view; an older record never changes what a newer one left (pure)."""
    quoted = [f"`{name.replace('`', '``')}`" for name in columns]
    same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in (*IDENTITY, key_column))
    newer = "s._offset > t._offset"
    return "\n".join(
        (
            f"MERGE INTO {table} AS t USING {BATCH} AS s ON {same}",
            f"WHEN MATCHED AND {newer} AND s.{TOMBSTONE} THEN DELETE",
            f"WHEN MATCHED AND {newer} THEN UPDATE SET",
            ", ".join(f"t.{name} = s.{name}" for name in quoted),
            f"WHEN NOT MATCHED AND NOT s.{TOMBSTONE} THEN INSERT ({', '.join(quoted)})",
            f"VALUES ({', '.join(f's.{name}' for name in quoted)})",
        )
    )

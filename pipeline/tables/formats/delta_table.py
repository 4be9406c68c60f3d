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

from pipeline.offsets.cut import REWRITE_HINT, Cut, TableRefused
from pipeline.tables.formats.column_changes import ColumnChanges, altered
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.formats.merged_table import MergedTable, written_by_another
from pipeline.tables.formats.table import DEFAULT_LAYOUT, Layout, TableSize

COMMIT_OFFSETS = "spark.databricks.delta.commitInfo.userMetadata"
SKIP_EMPTY = "spark.databricks.delta.skipRecordingEmptyCommits"
RECENT_COMMITS = 20
NO_TABLE = frozenset(
    {"DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_TABLE_ONLY_OPERATION"}
)
CONFLICTS = "io.delta.exceptions."
"""The package of exactly those exceptions that Delta raises if another commit came in between."""


class DeltaTable(MergedTable):
    """The table at `path`, on any file system that Spark can reach."""

    __slots__ = ()

    def __init__(
        self,
        session: SparkSession,
        path: str,
        layout: Layout = DEFAULT_LAYOUT,
        evolution: Evolution = Evolution.STRICT,
    ) -> None:
        super().__init__(session, qualified(session, path), layout, evolution)

    @property
    def name(self) -> str:
        return f"delta.`{self._place.replace('`', '``')}`"

    def held(self) -> Cut | None:
        recent = self._history(RECENT_COMMITS)
        return self._cut_from(recent) if recent else None

    def read(self) -> DataFrame:
        return self._session.read.format("delta").load(self._place)

    def size(self) -> TableSize:
        detail = self._detail()
        return TableSize(detail["numFiles"], detail["sizeInBytes"])

    def compact(self, retain_hours: int | None) -> None:
        # Without offsets: another stream may commit newer ones while this works.
        with conflicts_refused(self._place):
            self._session.sql(f"OPTIMIZE {self.name}")
        if retain_hours is not None:
            self._session.sql(f"VACUUM {self.name} RETAIN {retain_hours} HOURS")

    def _write(self, live: DataFrame, cut: Cut) -> None:
        writer = live.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        with self._committing(live.sparkSession, cut):
            writer.partitionBy(*self._layout.partition_by).options(
                **self._layout.write_options
            ).save(self._place)

    def _alter(self, changes: ColumnChanges) -> None:
        """Write the table's own rows again, with other columns.

        Delta could change the columns alone, but then only readers that know its newer features (column
        mapping, type widening) could read the table.
        """
        partition_by = self._partitioned_by()
        if lost := sorted(set(partition_by) & set(changes.dropped)):
            raise TableRefused(
                f"{self._place} is partitioned by {lost[0]}, which the values no longer have;"
                f" {REWRITE_HINT}"
            )
        writer = altered(self.read(), changes).write.format("delta").mode("overwrite")
        cut = self.held()
        assert cut is not None, "its columns were read a moment ago"
        with self._committing(self._session, cut):
            writer.option("overwriteSchema", "true").partitionBy(
                *(changes.renamed.get(name, name) for name in partition_by)
            ).save(self._place)

    def _partitioned_by(self) -> list[str]:
        return list(self._detail()["partitionColumns"])

    def _detail(self) -> Row:
        (detail,) = self._session.sql(f"DESCRIBE DETAIL {self.name}").collect()
        return detail

    def confirm(self) -> None:
        """Repeat the table's offsets in an extra commit if others have committed since.

        Delta forgets old commits (`delta.logRetentionDuration`), but must not forget our last one.
        """
        recent = self._history(RECENT_COMMITS)
        if recent and Cut.from_json(recent[0].userMetadata) is None:
            nothing = self.read().limit(0)
            with self._committing(self._session, self._cut_from(recent)):
                nothing.write.format("delta").mode("append").save(self._place)

    @contextlib.contextmanager
    def _committing(self, session: SparkSession, cut: Cut) -> Iterator[None]:
        session.conf.set(COMMIT_OFFSETS, cut.to_json())
        session.conf.set(SKIP_EMPTY, "false")
        try:
            with conflicts_refused(self._place):
                yield
        finally:
            session.conf.unset(COMMIT_OFFSETS)
            session.conf.unset(SKIP_EMPTY)

    def _cut_from(self, recent: Sequence[Row]) -> Cut:
        """Returns the offsets from the newest commits, or if these have none, from the whole log."""
        cut = cut_of(recent) or cut_of(self._history(None))
        if cut is None:
            raise TableRefused(
                f"{self._place} is a Delta table whose log does not say which offsets it holds: "
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
            raise written_by_another(path) from error
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

"""A Delta table of the records whose values could not be parsed, with their bytes and the reason.

A record is added before the table of last values takes its offset into account: a job that is killed in
between adds it again, and finds it there.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pipeline.offsets.cut import TableRefused
from pipeline.spark.persisted import persisted
from pipeline.tables.formats.delta_table import DeltaTable, conflicts_refused, qualified

COLUMNS = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
    " reason STRING"
)
LETTERS = "kompakt_dead_letters"
"""The name of the view that holds the records to add."""
SAME = " AND ".join(
    f"t.{name} <=> s.{name}" for name in ("topic", "partition", "offset", "timestamp", "value")
)
"""In a topic that was deleted and created again, an offset names another record."""


class DeadLetters:
    """The table at `path`."""

    __slots__ = ("_path", "_table")

    def __init__(self, session: SparkSession, path: str, *, beside: str | None = None) -> None:
        """Use the table at `path`.

        Args:
            beside: the path of the table of last values.

        Raises:
            TableRefused: that is the same path.
        """
        if beside is not None and qualified(session, path) == qualified(session, beside):
            raise TableRefused("--dead-letters and --table are the same path")
        self._path = path
        self._table = DeltaTable(session, path)

    def add(self, letters: DataFrame) -> None:
        """Add records that are not there yet, in one commit; none if there are none.

        Raises:
            TableRefused: another program wrote the table at the same moment.
        """
        with persisted(letters):
            if letters.isEmpty():
                return
            letters.createOrReplaceTempView(LETTERS)
            session = letters.sparkSession
            with conflicts_refused(self._path):
                session.sql(
                    f"CREATE TABLE IF NOT EXISTS {self._table.name} ({COLUMNS}) USING delta"
                )
                session.sql(
                    f"MERGE INTO {self._table.name} AS t USING {LETTERS} AS s ON {SAME}"
                    " WHEN NOT MATCHED THEN INSERT *"
                )

    def read(self) -> DataFrame:
        """Returns the records."""
        return self._table.read()

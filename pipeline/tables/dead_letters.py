"""A Delta table of the records whose values could not be parsed, with their bytes and the reason.

A record is added before the table of last values takes its offset into account: a job that is killed in
between adds it again, and finds it there.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pipeline.tables.delta_table import DeltaTable, conflicts_refused

COLUMNS = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
    " reason STRING"
)
BATCH = "kompakt_dead_letters"
"""The name of the view that holds the records to add."""
SAME = " AND ".join(f"t.{name} = s.{name}" for name in ("topic", "partition", "offset"))


class DeadLetters:
    """The table at `path`."""

    __slots__ = ("_path", "_session", "_table")

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._path = path
        self._table = DeltaTable(session, path)

    def add(self, letters: DataFrame) -> None:
        """Add records that are not there yet, in one commit; none if there are none.

        Raises:
            TableRefused: another program wrote the table at the same moment.
        """
        letters = letters.persist()
        try:
            if letters.isEmpty():
                return
            letters.createOrReplaceTempView(BATCH)
            session = letters.sparkSession
            with conflicts_refused(self._path):
                session.sql(
                    f"CREATE TABLE IF NOT EXISTS {self._table.name} ({COLUMNS}) USING delta"
                )
                session.sql(
                    f"MERGE INTO {self._table.name} AS t USING {BATCH} AS s ON {SAME}"
                    " WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            letters.unpersist()

    def read(self) -> DataFrame:
        """Returns the records."""
        return self._table.read()

"""Rows by a plan that does not say which table they are read from."""

from __future__ import annotations

from pyspark.sql import DataFrame


def detached(rows: DataFrame) -> DataFrame:
    """Returns the same rows by a plan that does not read the table: Spark cannot resolve a MERGE into an
    Iceberg table whose source reads that table, too."""
    session = rows.sparkSession
    of_java = session._jsparkSession.createDataFrame(rows._jdf.toJavaRDD(), rows._jdf.schema())
    return DataFrame(of_java, session)

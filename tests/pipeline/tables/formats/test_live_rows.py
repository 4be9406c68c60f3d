"""Rows without tombstones, of values that are parsed once."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from pipeline.tables.formats.live_rows import live_rows
from pipeline.tables.payload import rows_of
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat

EVENTS = Payload(
    value_format=PayloadFormat.JSON,
    value_schema="id BIGINT, note STRING",
    envelope=Envelope.DEBEZIUM,
)


SOME_RECORDS = (
    "'t' AS topic", "0 AS partition", "id AS offset", "timestamp_seconds(id) AS timestamp",
    "CAST(CAST(id AS STRING) AS BINARY) AS key", "CAST(CAST(id AS STRING) AS BINARY) AS value",
)  # fmt: skip


def test_rows_that_delete_their_key_are_left_out(session: SparkSession) -> None:
    rows = session.createDataFrame(
        [("a", False), ("b", True), ("c", False)], "key STRING, _tombstone BOOLEAN"
    )
    live = live_rows(rows)
    assert live.columns == ["key"]
    assert sorted(row.key for row in live.collect()) == ["a", "c"]


def test_a_value_is_not_parsed_again_for_the_condition(session: SparkSession) -> None:
    rows = rows_of(session.range(3).selectExpr(*SOME_RECORDS), EVENTS, None)
    assert parses(live_rows(rows)) == 1
    assert parses(rows.where("NOT _tombstone")) > 1, "Spark need not be kept from it any more"


def parses(frame: DataFrame) -> int:
    """Returns how often the optimized plan of a frame parses JSON."""
    return str(frame._jdf.queryExecution().optimizedPlan().toString()).count("from_json(")

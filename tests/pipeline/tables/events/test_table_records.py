"""Maxwell's records as rows of a table: Spark decides as the function does that exports use."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from pipeline.export.columns.table_records import type_in
from pipeline.offsets.cut import Cut, TableRefused
from pipeline.tables.payload_options import PayloadFormat
from pipeline.tables.source_table import NO_PRIMARY_KEY, RowKey, SourceTable, is_row_of
from tests.pipeline.maxwell_transcript import (
    ARRAY_KEYS,
    CUSTOMERS,
    JOURNAL,
    KEY,
    MOVED_NOTES,
    OBJECT_KEYS,
    ORDERS,
    payload_of,
    transcript,
)
from tests.pipeline.table_model import NOTHING, Record, frame, record
from tests.pipeline.tables.test_source_table import NO_KEYS

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.spark.job import cause
from pipeline.tables.events.table_records import verdict
from pipeline.tables.formats.parquet_table import ParquetTable
from pipeline.tables.job import bring_in

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

EVENT_TYPES = (
    "insert",
    "table-alter",
    "database-drop",
    "bootstrap-start",
    "bootstrap-complete",
    None,
)
ODD_KEYS = [
    *NO_KEYS, b'{"database":"shop","table":"orders","_uuid":"x"}', b'["shop","orders",[]]',
    b'["shop","orders"]', b'["shop","orders",{}]',
]  # fmt: skip


def odd_records() -> list[Record]:
    values = [
        b"{}" if each is None else json.dumps({"type": each}).encode() for each in EVENT_TYPES
    ]
    pairs = [(key, value) for key in ODD_KEYS for value in (*values, b"no json", None)]
    return [record(0, offset, key, value) for offset, (key, value) in enumerate(pairs)]


def decided(records: list[Record], table: SourceTable) -> dict[int, str]:
    """Returns what the function says of each record: that it stays, that it goes, or a refusal."""
    found = {}
    for _, _, offset, _, key, value in records:
        try:
            stays = is_row_of(table, RowKey.read(key or b""), type_in(value))
            found[offset] = "stays" if stays else "goes"
        except TableRefused as error:
            found[offset] = str(error)
    return found


def decided_by_spark(
    session: SparkSession, records: list[Record], table: SourceTable
) -> dict[int, str]:
    found = verdict(table)
    why_not = F.coalesce(found.why_not, F.lit("stays"))
    said = F.when(found.may_be_row, why_not).otherwise("goes")
    return {
        row.offset: row.said
        for row in frame(session, records).select("offset", said.alias("said")).collect()
    }


@pytest.mark.parametrize("table", [ORDERS, CUSTOMERS, JOURNAL], ids=lambda each: each.name)
@pytest.mark.parametrize("name", [OBJECT_KEYS, ARRAY_KEYS, "odd"])
def test_spark_decides_as_the_function_does(
    session: SparkSession, name: str, table: SourceTable
) -> None:
    records = odd_records() if name == "odd" else transcript(name)
    assert decided_by_spark(session, records, table) == decided(records, table)


def test_a_table_has_the_rows_of_the_last_events(session: SparkSession, tmp_path: Path) -> None:
    payload = payload_of(key_format=PayloadFormat.JSON, key_schema=KEY)
    table = ParquetTable(session, str(tmp_path / "orders"))
    records = transcript(OBJECT_KEYS)
    reached: Cut | None = None
    for part in (records[:4], records[4:11], records[11:]):
        reached, _ = bring_in(frame(session, part), table, payload, NOTHING, reached)

    rows = {row.key["pk.id"]: row for row in table.read().collect()}
    assert {key: row.note for key, row in rows.items()} == MOVED_NOTES
    first = rows[1]
    assert (first.id, first.price, first.tags) == (1, Decimal("1.50"), ["a", "b"])
    assert (bytes(first.data), first.facts) == (b"\0\xff", '{"n":1}')
    assert first.placed_at.isoformat() == "2026-01-02T03:04:05.678901"
    assert (first.city, rows[5].city) == (None, "Bern")
    assert reached is not None
    assert reached.offsets == {"orders": {0: 19}}


def test_a_job_ends_at_a_row_of_a_table_without_a_primary_key(
    session: SparkSession, tmp_path: Path
) -> None:
    table = ParquetTable(session, str(tmp_path / "journal"))
    records = frame(session, transcript(OBJECT_KEYS))
    with pytest.raises(PySparkException) as refused:
        bring_in(records, table, payload_of(JOURNAL), NOTHING)
    assert cause(refused.value) == f"orders-0, offset 10: {NO_PRIMARY_KEY}"
    assert table.held() is None

"""A table in Iceberg says which offsets it holds, even if others change it meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.payload_options import Payload, PayloadFormat
from tests.harness.iceberg_rest_catalog import rest_catalog
from tests.pipeline.table_kinds import CATALOG, table_at
from tests.pipeline.table_model import (
    NOTHING,
    content,
    frame,
    model,
    record,
    refute_harm_of_two_streams,
    take,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.iceberg_table import IcebergTable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]


def iceberg(session: SparkSession, path: Path, **layout: Any) -> IcebergTable:
    from pipeline.tables.formats.iceberg_table import IcebergTable
    from pipeline.tables.formats.table import Layout

    table = table_at("iceberg", session, path, Layout(**layout))
    assert isinstance(table, IcebergTable)
    return table


def offsets_of(table: IcebergTable) -> dict[int, int]:
    held = table.held()
    assert held is not None
    return dict(held.offsets["orders"])


def test_others_may_compact_it_roll_it_back_and_expire_snapshots(
    session: SparkSession, tmp_path: Path
) -> None:
    table = iceberg(session, tmp_path / "a `quoted` table")
    take(session, table, record(0, 0, b"k", b"v"))
    (first,) = session.sql(f"SELECT snapshot_id FROM {table.name}.snapshots").collect()
    take(session, table, record(0, 1, b"k", None), record(0, 2, b"j", b"w"))
    named = f"table => '{table.name}'"
    session.sql(f"CALL {CATALOG}.system.rewrite_data_files({named})").collect()
    assert offsets_of(table) == {0: 3}

    session.sql(
        f"CALL {CATALOG}.system.rollback_to_snapshot({named}, snapshot_id => {first.snapshot_id})"
    ).collect()
    assert offsets_of(table) == {0: 1}
    take(session, table, record(0, 1, b"k", None), record(0, 2, b"j", b"w"))
    session.sql(f"CALL {CATALOG}.system.rewrite_manifests({named})").collect()
    session.sql(
        f"CALL {CATALOG}.system.rewrite_data_files({named}, options => map('rewrite-all', 'true'))"
    ).collect()
    table.confirm()
    table.confirm()
    session.sql(
        f"CALL {CATALOG}.system.expire_snapshots({named}, older_than => now(), retain_last => 1)"
    ).collect()
    assert session.sql(f"SELECT * FROM {table.name}.snapshots").count() == 1
    assert offsets_of(iceberg(session, tmp_path / "a `quoted` table")) == {0: 3}
    assert content(table) == {("orders", 0, b"j"): (2, b"w")}


def test_a_table_without_our_snapshots_is_refused(session: SparkSession, tmp_path: Path) -> None:
    table = iceberg(session, tmp_path / "table")
    assert table.held() is None
    session.sql(f"CREATE NAMESPACE {table.name.rpartition('.')[0]}")
    session.range(3).writeTo(table.name).create()
    with pytest.raises(TableRefused, match="no snapshot that says which offsets it holds"):
        table.held()


@pytest.mark.parametrize(("mode", "deletes"), [("merge-on-read", 1), ("copy-on-write", 0)])
def test_a_merge_is_on_read_unless_the_table_says_otherwise(
    session: SparkSession, tmp_path: Path, mode: str, deletes: int
) -> None:
    options = {} if mode == "merge-on-read" else {"write.merge.mode": mode}
    table = iceberg(session, tmp_path / "table", write_options=options)
    take(session, table, *(record(0, at, b"%d" % at, b"v") for at in range(10)))
    take(session, table, record(0, 10, b"3", None), record(0, 11, b"4", b"w"))

    found = session.sql(f"SELECT count(*) AS n FROM {table.name}.delete_files").collect()
    assert (found[0].n > 0) == bool(deletes)
    assert content(table)["orders", 0, b"4"] == (11, b"w")
    assert len(content(table)) == 9


def test_a_table_is_partitioned_by_transforms_and_columns(
    session: SparkSession, tmp_path: Path
) -> None:
    by = ["bucket(4, key)", "_topic"]
    table = iceberg(session, tmp_path / "table", partition_by=by)
    records = [record(0, at, b"%d" % at, b"v") for at in range(10)]
    take(session, table, *records)
    take(session, table, record(0, 10, b"3", None))

    described = session.sql(f"DESCRIBE TABLE {table.name}").collect()
    parts = [row.data_type for row in described if row.col_name.startswith("Part ")]
    assert parts == ["bucket(4, key)", "_topic"]
    assert content(table) == model([*records, record(0, 10, b"3", None)])


def test_a_stream_that_died_after_it_had_added_a_column_leaves_a_table_that_it_continues(
    session: SparkSession, tmp_path: Path
) -> None:
    from pipeline.tables.job import bring_in

    def values(schema: str, *records: Any) -> None:
        payload = Payload(value_format=PayloadFormat.JSON, value_schema=schema)
        table = table_at("iceberg", session, tmp_path / "table", evolution=Evolution.ADD)
        bring_in(frame(session, records), table, payload, NOTHING)

    values("id INT", record(0, 0, b"a", b'{"id": 1}'))
    table = iceberg(session, tmp_path / "table")
    session.sql(f"ALTER TABLE {table.name} ADD COLUMN city STRING")
    assert offsets_of(table) == {0: 1}

    values("id INT, city STRING", record(0, 1, b"b", b'{"id": 2, "city": "Rome"}'))
    rows = table.read().orderBy("key").select("id", "city").collect()
    assert [tuple(row) for row in rows] == [(1, None), (2, "Rome")]


def test_of_two_streams_that_commit_at_one_moment_one_is_refused_and_the_table_is_right(
    session: SparkSession, tmp_path: Path
) -> None:
    refute_harm_of_two_streams(session, lambda own: iceberg(own, tmp_path / "table"), batches=10)


def test_it_may_be_in_a_rest_catalog(session: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.formats.iceberg_table import IcebergTable

    with rest_catalog(tmp_path / "rest") as uri:
        of_catalog = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri}
        for name, value in of_catalog.items():
            session.conf.set(f"spark.sql.catalog.rest{name}", value)
        table = IcebergTable(session, "rest.bank.accounts")
        records = [record(0, at, b"%d" % (at % 3), b"%d" % at) for at in range(10)]
        take(session, table, *records[:4])
        take(session, table, *records, record(0, 10, b"1", None))
        assert content(table) == model([*records, record(0, 10, b"1", None)])
        assert offsets_of(table) == {0: 11}

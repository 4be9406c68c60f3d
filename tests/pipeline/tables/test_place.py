"""What a session needs for a table of each format."""

from __future__ import annotations

import pytest

from pipeline.spark.jars import DELTA, ICEBERG
from pipeline.spark.session_options import SessionOptions
from pipeline.tables.options import TableFormat
from pipeline.tables.place import Place


def test_each_format_names_its_jars() -> None:
    pins = {kind: Place(path="a.b.c", format=kind).pins() for kind in TableFormat}

    assert pins == {
        TableFormat.DELTA: [DELTA],
        TableFormat.ICEBERG: [ICEBERG],
        TableFormat.PARQUET: [],
    }


def test_a_session_knows_the_catalog_of_an_iceberg_table_and_the_users_conf_wins() -> None:
    place = Place(
        path="lake.bank.accounts",
        format=TableFormat.ICEBERG,
        catalog={"type": "rest", "uri": "http://localhost"},
    )

    said = place.session_options(SessionOptions(conf={"spark.sql.catalog.lake.type": "jdbc"}))

    assert said.conf == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": "http://localhost",
    }


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.PARQUET])
def test_other_formats_change_nothing_of_a_session(kind: TableFormat) -> None:
    options = SessionOptions(conf={"a": "b"})

    assert Place(path="p", format=kind).session_options(options) is options

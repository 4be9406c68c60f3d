"""Columns and rows of a table, selected by Spark SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.column_names import ORIGIN
from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from tests.pipeline.table_model import NOTHING, frame, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]


def payload(**options: Any) -> Payload:
    said = {"value_format": PayloadFormat.JSON, "value_schema": "id BIGINT, city STRING"}
    return Payload(key_format=PayloadFormat.STRING, **{**said, **options})


def rows(session: SparkSession, wanted: Payload, *values: bytes | None) -> list[dict[str, Any]]:
    from pipeline.tables.payload import rows_of

    records = [record(0, offset, b"k%d" % offset, value) for offset, value in enumerate(values)]
    found = rows_of(frame(session, records), wanted, None).orderBy("_offset").collect()
    return [row.asDict() for row in found]


BERN, ROME = b'{"id": 1, "city": "Bern"}', b'{"id": 2, "city": "Rome"}'


def test_the_columns_are_those_selected_beside_the_key_and_the_origin(
    session: SparkSession,
) -> None:
    wanted = payload(select=("upper(city) AS town", "id + _offset AS n"))
    (bern, gone) = rows(session, wanted, BERN, None)

    assert list(bern) == ["key", "town", "n", *ORIGIN, "_tombstone"]
    assert (bern["key"], bern["town"], bern["n"], bern["_tombstone"]) == ("k0", "BERN", 1, False)
    assert (gone["town"], gone["n"], gone["_tombstone"]) == (None, None, True)


def test_a_row_that_the_condition_leaves_out_deletes_its_key(session: SparkSession) -> None:
    wanted = payload(where="city = 'Bern' AND key LIKE 'k%'")
    found = rows(session, wanted, BERN, ROME, b'{"id": 3}', None)

    assert [row["_tombstone"] for row in found] == [False, True, True, True]


def test_a_value_that_is_kept_unparsed_stays_whatever_is_selected(session: SparkSession) -> None:
    wanted = payload(where="city = 'Bern'", select=("id",), on_unparsable=OnUnparsable.KEEP)
    (found,) = rows(session, wanted, b"no")

    assert (found["_unparsed"], found["_tombstone"], found["id"]) == (b"no", False, None)


def test_a_value_that_cannot_be_parsed_ends_the_job_whatever_is_selected(
    session: SparkSession,
) -> None:
    wanted = payload(where="city = 'Bern'", select=("id",))
    with pytest.raises(Exception, match="orders-0, offset 0: the value is not json"):
        rows(session, wanted, b"no")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"select": ("upper(city)",)}, "--select upper.city.: give it a name"),
        ({"select": ("nothing",)}, "--select: .*nothing"),
        ({"select": ("explode(array(1, 2)) AS n",)}, "--select: "),
        ({"select": ("count(*) AS n",)}, "--select: "),
        ({"select": ("id AS key",)}, "two columns would be named key"),
        ({"select": ("id +",)}, "--select: "),
        ({"where": "nothing = 1"}, "--where nothing = 1: .*nothing"),
        ({"where": "id"}, "--where id: "),
        ({"where": "id ="}, "--where id =: "),
    ],
)
def test_what_cannot_be_evaluated_row_by_row_is_refused(
    session: SparkSession, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence):
        rows(session, payload(**options), BERN)


def test_a_selection_needs_a_schema_of_the_values() -> None:
    with pytest.raises(TableRefused, match="--select needs --value-schema"):
        payload(select=("id",), value_schema=None)


def test_a_stream_removes_the_row_of_a_key_that_leaves_the_condition(
    session: SparkSession, tmp_path: Path
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.job import bring_in

    wanted = payload(where="city = 'Bern'", select=("id",))
    table = DeltaTable(session, str(tmp_path / "t"))
    for batch in (
        [record(0, 0, b"a", BERN), record(0, 1, b"b", BERN)],
        [record(0, 2, b"a", ROME), record(0, 3, b"c", ROME)],
    ):
        bring_in(frame(session, batch), table, wanted, NOTHING)

    assert [(row["key"], row["id"]) for row in table.read().collect()] == [("b", 1)]

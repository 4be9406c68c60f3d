"""The table's columns become those of the values, as far as the user allows it, or the job ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.payload_options import Payload, PayloadFormat
from tests.pipeline.table_kinds import KINDS, MERGED_KINDS, table_at
from tests.pipeline.table_model import NOTHING, Record, frame, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

FIRST = record(0, 0, b"a", b'{"id": 1}'), record(0, 1, b"b", b'{"id": 2}')
SECOND = (
    record(0, 2, b"b", b'{"id": 2, "city": "Rome", "at": {"x": 1}}'),
    record(0, 3, b"c", b'{"id": 3, "city": "Bern"}'),
)
WIDER = "id INT, city STRING, at STRUCT<x: INT>"


class Killed(Exception):
    """The process is gone at this moment."""


class Site:
    """A table of one kind, opened again for each micro-batch, as by a new process."""

    def __init__(self, session: SparkSession, path: Path, kind: str) -> None:
        self._session = session
        self._path = path
        self._kind = kind

    def table(self, evolution: Evolution = Evolution.ADD) -> Table:
        return table_at(self._kind, self._session, self._path, evolution=evolution)

    def take(self, schema: str, *records: Record, evolution: Evolution = Evolution.ADD) -> None:
        from pipeline.tables.job import bring_in

        payload = Payload(value_format=PayloadFormat.JSON, value_schema=schema)
        bring_in(frame(self._session, records), self.table(evolution), payload, NOTHING)

    def take_avro(
        self, record: Record, *more: dict[str, Any], evolution: Evolution = Evolution.ADD
    ) -> None:
        """Take a value of a schema with these fields, too."""
        from pipeline.tables.avro_fields import former_names
        from pipeline.tables.formats.table import Layout
        from pipeline.tables.job import bring_in

        schema = json.dumps(order_schema(*more))
        payload = Payload(value_format=PayloadFormat.AVRO, value_schema=schema)
        layout = Layout(former_names=former_names(payload))
        table = table_at(self._kind, self._session, self._path, layout, evolution)
        bring_in(frame(self._session, [record]), table, payload, NOTHING)

    def state(self) -> tuple[Any, ...]:
        """Returns the offsets, the columns and the rows."""
        table = self.table()
        rows = table.read().orderBy("key").collect()
        return table.held(), table.read().schema.simpleString(), [row.asDict(True) for row in rows]


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, session: SparkSession, tmp_path: Path) -> Site:
    site = Site(session, tmp_path / "table", request.param)
    site.take("id INT", *FIRST)
    return site


def test_new_columns_are_added_with_the_rows_that_have_them(site: Site) -> None:
    site.take(WIDER, *SECOND)

    rows = [(row["id"], row["city"], row["at"]) for row in site.state()[2]]
    assert rows == [(1, None, None), (2, "Rome", {"x": 1}), (3, "Bern", None)]
    site.take(WIDER, record(0, 4, b"a", None), record(0, 5, b"c", b'{"id": 3}'))
    assert [(row["id"], row["city"]) for row in site.state()[2]] == [(2, "Rome"), (3, None)]


def test_what_does_not_fit_is_refused_and_changes_nothing(site: Site) -> None:
    before = site.state()
    refused = {
        (
            "id INT, city STRING",
            Evolution.STRICT,
        ): "column city is missing in the table and string in"
        " the requested schema: --evolution add adds it",
        (
            "id BIGINT, city STRING",
            Evolution.ADD,
        ): "column id is int in the table and bigint in the",
        (
            "city STRING",
            Evolution.ADD,
        ): "column id is gone and city is new: if that is its new name, say so by --renamed id=city",
        ("id STRING", Evolution.ALL): "column id is int in the table and string in the requested",
        ("id INT, Key STRING", Evolution.ADD): "two columns would be named",
    }
    for (schema, evolution), sentence in refused.items():
        with pytest.raises(TableRefused, match=sentence):
            site.take(schema, *SECOND, evolution=evolution)
        assert site.state() == before


def test_delta_adds_columns_in_the_commit_of_the_rows(
    session: SparkSession, tmp_path: Path
) -> None:
    site = Site(session, tmp_path / "table", "delta")
    site.take("id INT", *FIRST)
    site.take(WIDER, *SECOND)

    table = site.table()
    versions = session.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/table`").collect()
    assert [row["version"] for row in versions] == [1, 0]
    held = table.held()
    assert held is not None
    assert held.offsets == {"orders": {0: 4}}


def test_a_writer_that_knows_fewer_columns_stops_before_it_writes(site: Site) -> None:
    site.take(WIDER, *SECOND)
    before = site.state()

    with pytest.raises(TableRefused, match="column at is struct<x:int> in the table and missing"):
        site.take("id INT", record(0, 4, b"d", b'{"id": 4}'))
    assert site.state() == before


def test_a_column_with_a_default_is_not_added_to_rows_that_should_have_it(site: Site) -> None:
    """The database has filled it in, and no event says so: only a new table has it."""
    with_city = {"name": "city", "type": "string", "default": "Bern"}
    site.take_avro(record(0, 10, b"a", avro_order({"id": 7})))
    before = site.state()

    says = 'column city is new and has the default "Bern" in --value-schema, which earlier rows'
    with pytest.raises(TableRefused, match=says):
        site.take_avro(
            record(0, 11, b"b", avro_order({"id": 8, "city": "Oslo"}, with_city)), with_city
        )
    assert site.state() == before


def test_columns_are_widened_renamed_and_dropped(site: Site) -> None:
    """Rows that have no newer record have their values in the new columns."""
    first: list[dict[str, Any]] = [
        {"name": "n", "type": "int"},
        {"name": "town", "type": ["null", "string"], "default": None},
        {"name": "gone", "type": ["null", "string"], "default": None},
        position("int"),
    ]
    then: list[dict[str, Any]] = [
        {"name": "n", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None, "aliases": ["town"]},
        position("long"),
    ]
    for offset, key in enumerate((b"a", b"b"), start=2):
        row = {"id": offset, "n": offset, "town": "Rome", "gone": "x", "at": {"x": offset}}
        site.take_avro(record(0, offset, key, avro_order(row, *first)), *first)
    row = {"id": 4, "n": 2**40, "city": "Oslo", "at": {"x": 2**41}}
    late = record(0, 4, b"b", avro_order(row, *then))
    before = site.state()
    with pytest.raises(TableRefused, match="--evolution all changes it"):
        site.take_avro(late, *then)
    assert site.state() == before

    site.take_avro(late, *then, evolution=Evolution.ALL)
    held, columns, rows = site.state()
    assert held.offsets == {"orders": {0: 5}}
    assert set(rows[0]) - {"key", "_topic", "_partition", "_offset", "_timestamp"} == {
        "id", "n", "city", "at",
    }  # fmt: skip
    assert "n:bigint" in columns
    assert "at:struct<x:bigint>" in columns
    assert [(each["id"], each["n"], each["city"], each["at"]["x"]) for each in rows] == [
        (2, 2, "Rome", 2),
        (4, 2**40, "Oslo", 2**41),
    ]
    site.take_avro(record(0, 5, b"a", None), *then)
    assert [each["id"] for each in site.state()[2]] == [4]


@pytest.mark.parametrize("kind", MERGED_KINDS)
def test_a_column_that_another_run_has_added_meanwhile_is_not_dropped(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    from pipeline.tables.job import bring_in

    site = Site(session, tmp_path / "table", kind)
    site.take("id INT", *FIRST)
    stale = Payload(value_format=PayloadFormat.JSON, value_schema="id INT")
    long_lived = site.table(Evolution.ALL)
    late = [record(0, at, b"c", b'{"id": 3}') for at in range(2, 6)]
    bring_in(frame(session, late[:1]), long_lived, stale, NOTHING)
    site.take("id INT, city STRING", late[1], evolution=Evolution.ALL)
    before = site.state()

    with pytest.raises(TableRefused, match="another run has added column city"):
        bring_in(frame(session, late[2:]), long_lived, stale, NOTHING)
    assert site.state() == before


def test_a_history_keeps_the_columns_of_its_values(session: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.job import bring_in

    def take(schema: str, offset: int) -> None:
        payload = Payload(value_format=PayloadFormat.JSON, value_schema=schema, history=True)
        table = table_at(
            "delta", session, tmp_path / "table", evolution=Evolution.ALL, is_history=True
        )
        records = [record(0, offset, b"a", b'{"id": %d}' % offset)]
        bring_in(frame(session, records), table, payload, NOTHING)

    take("id INT, city STRING", 0)
    take("id BIGINT, city STRING", 1)
    with pytest.raises(TableRefused, match="column city is gone, and a history keeps the values"):
        take("id BIGINT", 2)


@pytest.mark.parametrize("kind", MERGED_KINDS)
def test_a_crash_between_the_columns_and_the_rows_leaves_the_same_table(
    session: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(session, tmp_path / "table", kind)
    site.take("id INT, city STRING", record(0, 0, b"a", b'{"id": 1, "city": "Rome"}'))
    more = record(0, 1, b"b", b'{"id": 5000000000}')

    run = type(session).sql

    def run_unless_merge(self: SparkSession, text: str) -> DataFrame:
        if text.startswith("MERGE"):
            raise Killed
        return run(self, text)

    with monkeypatch.context() as killing:
        killing.setattr(type(session), "sql", run_unless_merge)
        with pytest.raises(Killed):
            site.take("id BIGINT", more, evolution=Evolution.ALL)
    held, columns, rows = site.state()
    assert held.offsets == {"orders": {0: 1}}
    assert "id:bigint" in columns
    assert [(each["key"], each["id"]) for each in rows] == [(b"a", 1)]

    site.take("id BIGINT", more, evolution=Evolution.ALL)
    assert [each["id"] for each in site.state()[2]] == [1, 5000000000]


def test_a_partitioned_delta_table_stays_partitioned(session: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.formats.table import Layout
    from pipeline.tables.job import bring_in

    path = tmp_path / "table"
    layout = Layout(partition_by=["town"], former_names={"city": ["town"]})
    table = table_at("delta", session, path, layout, Evolution.ALL)
    early = Payload(value_format=PayloadFormat.JSON, value_schema="id INT, town STRING")
    bring_in(
        frame(session, [record(0, 0, b"a", b'{"id": 1, "town": "Rome"}')]), table, early, NOTHING
    )
    late = Payload(value_format=PayloadFormat.JSON, value_schema="id BIGINT, city STRING")
    bring_in(frame(session, [record(0, 1, b"b", b'{"id": 2}')]), table, late, NOTHING)

    (detail,) = session.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
    assert detail["partitionColumns"] == ["city"]
    assert [(row["id"], row["city"]) for row in table.read().orderBy("id").collect()] == [
        (1, "Rome"),
        (2, None),
    ]
    bare = Payload(value_format=PayloadFormat.JSON, value_schema="id BIGINT")
    with pytest.raises(TableRefused, match="is partitioned by city, which the values no longer"):
        bring_in(frame(session, [record(0, 2, b"c", b'{"id": 3}')]), table, bare, NOTHING)


def position(scalar: str) -> dict[str, Any]:
    fields = [{"name": "x", "type": scalar}]
    return {"name": "at", "type": {"type": "record", "name": "At", "fields": fields}}


def avro_order(row: dict[str, Any], *more: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, order_schema(*more), row)
    return out.getvalue()


def order_schema(*more: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, *more]}

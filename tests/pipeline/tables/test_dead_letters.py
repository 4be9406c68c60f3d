"""Records whose values cannot be parsed go to a table of their own, once, and their keys have no row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from tests.pipeline.table_model import NOTHING, Record, frame, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.dead_letters import DeadLetters
    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

PAYLOAD = Payload(
    value_format=PayloadFormat.JSON,
    value_schema="n INT",
    key_format=PayloadFormat.JSON,
    key_schema="id INT",
    on_unparsable=OnUnparsable.DEAD_LETTER,
)


class Killed(Exception):
    """The driver dies here."""


class Site:
    """A table and its dead letters."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        from pipeline.tables.dead_letters import DeadLetters
        from pipeline.tables.formats.parquet_table import ParquetTable

        self.session = session
        # With its reads and merges, a Delta table would take five times as long.
        self.table: Table = ParquetTable(session, str(folder / "table"))
        self.letters: DeadLetters = DeadLetters(session, str(folder / "letters"))

    def take(self, *records: Record) -> None:
        from pipeline.tables.job import bring_in

        bring_in(
            frame(self.session, records), self.table, PAYLOAD, NOTHING, dead_letters=self.letters
        )

    def rows(self) -> dict[int, int]:
        return {row["key"].id: row["n"] for row in self.table.read().collect()}

    def dead(self) -> Sequence[tuple[Any, ...]]:
        columns = "partition", "offset", "key", "value", "reason"
        found = self.letters.read().orderBy("partition", "offset").select(*columns).collect()
        return [(row[0], row[1], bytes(row[2]), bytes(row[3]), row[4]) for row in found]


SAYS = "the value is not json of this schema"
ONE, TWO = b'{"id": 1}', b'{"id":2}'


def test_a_value_that_cannot_be_parsed_is_set_aside_and_its_key_has_no_row(
    session: SparkSession, tmp_path: Path
) -> None:
    site = Site(session, tmp_path)
    site.take(record(0, 0, ONE, b'{"n": 1}'), record(0, 1, TWO, b'{"n": 2}'))
    assert site.rows() == {1: 1, 2: 2}

    site.take(record(0, 2, ONE, b"none"), record(1, 0, TWO, b'{"n": "text"}'))
    assert site.rows() == {2: 2}
    assert site.dead() == [(0, 2, ONE, b"none", SAYS), (1, 0, TWO, b'{"n": "text"}', SAYS)]

    site.take(record(0, 3, ONE, b'{"n": 3}'), record(0, 4, TWO, None))
    assert site.rows() == {1: 3}
    assert len(site.dead()) == 2


def test_a_job_that_is_killed_in_between_adds_no_record_twice(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(session, tmp_path)
    site.take(record(0, 0, ONE, b'{"n": 1}'))
    batch = [record(0, 1, ONE, b"none"), record(0, 2, TWO, b'{"n": 2}')]

    def dying(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(site.table), "merge", dying)
        with pytest.raises(Killed):
            site.take(*batch)
    assert (len(site.dead()), site.rows()) == (1, {1: 1})

    site = Site(session, tmp_path)
    site.take(*batch)
    assert site.dead() == [(0, 1, ONE, b"none", SAYS)]
    assert site.rows() == {2: 2}


def test_without_such_a_record_there_is_no_table_of_them(
    session: SparkSession, tmp_path: Path
) -> None:
    site = Site(session, tmp_path)
    site.take(record(0, 0, ONE, b'{"n": 1}'), record(0, 1, TWO, None))

    assert not (tmp_path / "letters").exists()


def test_a_record_of_a_topic_that_was_created_again_is_another_one(
    session: SparkSession, tmp_path: Path
) -> None:
    site = Site(session, tmp_path)
    first, later = record(0, 0, ONE, b"none"), record(0, 0, ONE, b"no JSON")
    same_value = (*first[:3], first[3] + timedelta(days=1), *first[4:])
    for each in (first, first, later, same_value):
        parsed = frame(session, [each]).selectExpr("*", f"'{SAYS}' AS reason")
        site.letters.add(parsed)

    assert sorted(each[3] for each in site.dead()) == [b"no JSON", b"none", b"none"]


def test_the_table_and_its_dead_letters_are_two(session: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.dead_letters import DeadLetters

    with pytest.raises(TableRefused, match="are the same path"):
        DeadLetters(session, f"{tmp_path}/x/../table", beside=str(tmp_path / "table"))

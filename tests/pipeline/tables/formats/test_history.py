"""A history has each value of a key, and says until when it was valid, also if records come twice."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.payload_options import Payload, PayloadFormat
from tests.pipeline.table_kinds import MERGED_KINDS, table_at
from tests.pipeline.table_model import NOTHING, Record, below, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

HISTORY = Payload(history=True)
Value: TypeAlias = tuple[int, bytes, int, bytes, int | None, int | None]
"""Partition, key, offset, value, and of the key's next record the offset and the second."""


def record(partition: int, offset: int, key: bytes, value: bytes | None) -> Record:
    """A record of a second of its own: that of its offset."""
    return "orders", partition, offset, at(offset), key, value


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


@pytest.fixture(params=MERGED_KINDS)
def history_at(request: pytest.FixtureRequest, session: SparkSession) -> HistoryAt:
    def opened(path: Path, evolution: Evolution = Evolution.STRICT) -> Table:
        return table_at(request.param, session, path, evolution=evolution, is_history=True)

    return opened


class HistoryAt(Protocol):
    """Opens a history."""

    def __call__(self, path: Path, evolution: Evolution = Evolution.STRICT) -> Table: ...


def take(
    session: SparkSession, table: Table, records: Sequence[Record], payload: Payload = HISTORY
) -> None:
    """Bring records into a table, as the first micro-batch of a stream."""
    from pipeline.tables.job import bring_in

    bring_in(frame(session, records), table, payload, NOTHING)


def content(table: Table) -> list[Value]:
    def second(moment: datetime | None) -> int | None:
        return None if moment is None else int(moment.timestamp() - at(0).timestamp())

    return sorted(
        (
            row["_partition"],
            bytes(row["key"]),
            row["_offset"],
            bytes(row["value"]),
            row["_valid_to_offset"],
            second(row["_valid_to"].astimezone(UTC) if row["_valid_to"] else None),
        )
        for row in table.read().collect()
    )


def model(records: Sequence[Record]) -> list[Value]:
    found: list[Value] = []
    for _, partition, offset, _, key, value in records:
        assert key is not None
        ends = min(
            (r[2] for r in records if r[1:5:3] == (partition, key) and r[2] > offset), default=None
        )
        if value is not None:
            found.append((partition, key, offset, value, ends, ends))
    return sorted(found)


def random_records(choices: random.Random, count: int) -> list[Record]:
    return [
        record(
            offset % 2,
            offset // 2,
            choices.choice([b"a", b"b", b"c"]),
            choices.choice([b"1", b"2", b"3", None]),
        )
        for offset in range(count)
    ]


def test_random_batches_with_replays_are_the_models_history(
    session: SparkSession, tmp_path: Path, history_at: HistoryAt
) -> None:
    choices = random.Random(3)
    records = random_records(choices, 60)
    table, end = history_at(tmp_path / "history"), 0
    for _ in range(3):
        begin = choices.randrange(end + 1)
        end = choices.randrange(end + 1, 61)
        take(session, table, records[begin:end])
        held = history_at(tmp_path / "history").held()
        assert held is not None
        assert content(table) == model(below(records, held.offsets))
    assert end > 20


def test_a_column_that_is_added_is_null_in_earlier_values(
    session: SparkSession, tmp_path: Path, history_at: HistoryAt
) -> None:
    table = history_at(tmp_path / "history", Evolution.ADD)

    def values(schema: str, *rows: Any) -> None:
        payload = Payload(
            history=True,
            value_format=PayloadFormat.JSON,
            value_schema=schema,
            key_format=PayloadFormat.STRING,
        )
        take(
            session,
            table,
            [record(0, n, b"k", json.dumps(row).encode()) for n, row in rows],
            payload,
        )

    values("id INT", (0, {"id": 1}))
    values("id INT, city STRING", (1, {"id": 1, "city": "Bonn"}), (2, {"id": 2, "city": "Rome"}))
    rows = table.read().orderBy("_offset").select("id", "city", "_valid_to_offset").collect()
    assert [tuple(row) for row in rows] == [(1, None, 1), (1, "Bonn", 2), (2, "Rome", None)]


def test_offsets_without_a_record_are_said_at_the_start(
    session: SparkSession, tmp_path: Path, history_at: HistoryAt, capsys: pytest.CaptureFixture[str]
) -> None:
    table = history_at(tmp_path / "history")
    take(
        session,
        table,
        [record(0, 2, b"a", b"1"), record(0, 5, b"a", b"2"), record(1, 0, b"b", b"1")],
    )
    said = capsys.readouterr().err
    assert (
        "orders-0: from offset 5 on (2026-01-01 00:00:05 UTC) the history has every value" in said
    )
    assert "orders-1" not in said
    take(session, table, [record(0, 6, b"a", b"3"), record(1, 1, b"b", b"1")])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", MERGED_KINDS)
def test_a_history_and_a_table_of_last_values_do_not_become_each_other(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    from pipeline.export.delta_target import DeltaTarget
    from pipeline.tables.job import bring_in

    history, last = tmp_path / "history", tmp_path / "last"
    first, second = [record(0, 0, b"a", b"1")], [record(0, 1, b"a", b"2")]
    take(session, table_at(kind, session, history, is_history=True), first)
    plain = table_at(kind, session, history)
    with pytest.raises(
        TableRefused, match="column _valid_to is timestamp in the table and missing"
    ):
        bring_in(frame(session, second), plain, Payload(), NOTHING)
    rows = plain.read().selectExpr("*", "false AS _tombstone")
    held = plain.held()
    assert held is not None
    with pytest.raises(TableRefused, match="is a history, which the topic may no longer have"):
        plain.replace(rows, held)
    if kind == "delta":
        with pytest.raises(TableRefused, match="has a history, which an export does not write"):
            DeltaTarget(str(history)).held()

    bring_in(frame(session, first), table_at(kind, session, last), Payload(), NOTHING)
    refused = table_at(kind, session, last, evolution=Evolution.ADD, is_history=True)
    with pytest.raises(
        TableRefused, match="is a table of last values: write a history to another path"
    ):
        take(session, refused, second)

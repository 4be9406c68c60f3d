"""Values that the database did not send are those of the key's earlier event, or the job ends."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import (
    UNAVAILABLE,
    Envelope,
    OnMissingKey,
    OnUnavailable,
    Payload,
    PayloadFormat,
)
from tests.pipeline.table_kinds import KINDS, table_at
from tests.pipeline.table_model import NOTHING, Record, frame, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

FILLING = Payload(
    value_format=PayloadFormat.JSON,
    value_schema="id INT, doc STRING, tags ARRAY<STRING>",
    key_format=PayloadFormat.STRING,
    envelope=Envelope.DEBEZIUM,
    on_unavailable=OnUnavailable.FILL,
    on_missing_key=OnMissingKey.SKIP,
)
SAME: Any = object()
"""The value that an event does not have."""
Row = tuple[int, str | None, list[str] | None]


def event(
    key: bytes, offset: int, op: str, row_id: int = 0, doc: Any = None, tags: Any = None
) -> Record:
    after = {
        "id": row_id,
        "doc": UNAVAILABLE if doc is SAME else doc,
        "tags": [UNAVAILABLE] if tags is SAME else tags,
    }
    value = {"op": op, "after": None if op == "d" else after}
    return record(0, offset, key, json.dumps(value).encode())


def take(session: SparkSession, table: Table, *records: Record) -> None:
    from pipeline.tables.job import bring_in

    bring_in(frame(session, records), table, FILLING, NOTHING)


def rows(table: Table) -> dict[str, Row]:
    return {row["key"]: (row["id"], row["doc"], row["tags"]) for row in table.read().collect()}


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_the_micro_batch_or_of_the_table(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = table_at(kind, session, tmp_path / "table")
    take(
        session,
        table,
        event(b"a", 0, "c", 1, "long", ["x"]),
        event(b"a", 1, "u", 2, SAME, ["y"]),
        event(b"b", 2, "c", 1, None, None),
        event(b"c", 3, "c", 1, "gone", ["z"]),
    )
    assert rows(table) == {"a": (2, "long", ["y"]), "b": (1, None, None), "c": (1, "gone", ["z"])}

    take(
        session,
        table,
        event(b"a", 4, "u", 3, SAME, SAME),
        event(b"b", 5, "u", 2, SAME, ["n"]),
        event(b"b", 6, "u", 3, "new", SAME),
        event(b"c", 7, "d"),
        event(b"c", 8, "c", 9, "back", None),
        event(b"c", 9, "u", 10, SAME, SAME),
    )
    assert rows(table) == {
        "a": (3, "long", ["y"]),
        "b": (3, "new", ["n"]),
        "c": (10, "back", None),
    }


REFUSED = {
    "no_earlier_event": [event(b"k", 4, "u", 2, SAME, None)],
    "a_gap_after_the_table": [event(b"a", 5, "u", 2, SAME, None)],
    "a_gap_after_the_event_with_it": [
        event(b"k", 4, "c", 1, "long", None),
        event(b"k", 7, "u", 2, SAME, None),
    ],
    "an_event_in_between_that_cannot_be_read": [
        record(0, 4, b"a", b'{"op": "u", "after": 7}'),
        event(b"a", 5, "u", 2, SAME, None),
    ],
    "the_key_was_deleted_in_between": [event(b"a", 4, "d"), event(b"a", 5, "u", 2, SAME, None)],
}


@pytest.mark.parametrize("case", REFUSED)
def test_where_an_event_in_between_may_be_missing_the_job_ends_and_nothing_is_written(
    session: SparkSession, tmp_path: Path, case: str
) -> None:
    from pyspark.errors import PySparkException

    table = table_at("parquet", session, tmp_path / "table")
    take(session, table, *(event(b"a", at, "c", 1, "long", ["x"]) for at in range(4)))
    before = rows(table), table.held()

    says = "did not send the value of doc|no event of Debezium"
    with pytest.raises(PySparkException, match=rf"orders-0, offset \d+: .*({says})"):
        take(session, table, *REFUSED[case])
    assert (rows(table), table.held()) == before


def test_a_gap_before_the_event_with_the_value_does_no_harm(
    session: SparkSession, tmp_path: Path
) -> None:
    table = table_at("parquet", session, tmp_path / "table")
    take(session, table, event(b"a", 5, "c", 1, "long", ["x"]), event(b"a", 6, "u", 2, SAME, SAME))
    take(session, table, event(b"b", 9, "c", 1, "other", None), event(b"b", 10, "u", 2, SAME, SAME))

    assert rows(table) == {"a": (2, "long", ["x"]), "b": (2, "other", None)}


def test_random_changes_in_random_micro_batches_are_the_rows_of_the_database(
    session: SparkSession, tmp_path: Path
) -> None:
    choices = random.Random(7)
    database: dict[bytes, Row] = {}
    states: list[dict[str, Row]] = []
    events: list[Record] = []
    for offset in range(120):
        key = choices.choice([b"a", b"b", b"c", b"d"])
        events.append(change(database, key, offset, choices))
        states.append({name.decode(): row for name, row in database.items()})

    done = 0
    while done < len(events):
        end = min(len(events), done + choices.randrange(1, 60))
        begin = choices.randrange(max(0, done - 5), done + 1)
        table = table_at("delta", session, tmp_path / "table")
        take(session, table, *events[begin:end])
        assert rows(table) == states[end - 1]
        done = end


def change(database: dict[bytes, Row], key: bytes, offset: int, choices: random.Random) -> Record:
    """Change a row, and return the event, which lacks what has not changed."""
    if key not in database:
        row = (offset, f"doc {offset}", choices.choice([None, ["x"]]))
        database[key] = row
        return event(key, offset, "c", *row)
    if choices.random() < 0.2:
        del database[key]
        return event(key, offset, "d")
    _, doc, tags = database[key]
    new_doc = choices.choice([doc, doc, f"doc {offset}", None])
    new_tags = choices.choice([tags, tags, [str(offset)]])
    database[key] = (offset, new_doc, new_tags)
    sent_doc = SAME if new_doc is doc and doc is not None else new_doc
    sent_tags = SAME if new_tags is tags and tags is not None else new_tags
    return event(key, offset, "u", offset, sent_doc, sent_tags)


def test_what_it_does_not_go_with_is_refused() -> None:
    with pytest.raises(TableRefused, match="fill goes with --envelope debezium"):
        Payload(on_unavailable=OnUnavailable.FILL)
    for other in ({"history": True}, {"where": "id > 0"}, {"select": ("id",)}):
        with pytest.raises(TableRefused, match="does not go with --history, --select and --where"):
            Payload(
                value_format=PayloadFormat.JSON,
                value_schema="id INT",
                envelope=Envelope.DEBEZIUM,
                on_unavailable=OnUnavailable.FILL,
                **other,
            )

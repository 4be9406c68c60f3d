"""A truncation deletes all rows of its topic that are older, or ends the job."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.tables.formats.evolution import Evolution
from pipeline.tables.payload_options import (
    Envelope,
    OnMissingKey,
    OnTruncate,
    OnUnavailable,
    OnUnparsable,
    Payload,
    PayloadFormat,
)
from pipeline.tables.registry_options import registry_access
from tests.harness.fake_registry import FakeRegistry, with_header
from tests.pipeline.table_kinds import KINDS, MERGED_KINDS, table_at
from tests.pipeline.table_model import NOTHING, WHEN, Record, frame
from tests.pipeline.tables.events.test_event_rows import WRITERS, payload_for
from tests.pipeline.tables.events.test_event_rows import event as event_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.formats.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

OPTIONS: dict[str, Any] = {
    "value_format": PayloadFormat.JSON,
    "value_schema": "id INT",
    "key_format": PayloadFormat.STRING,
    "envelope": Envelope.DEBEZIUM,
}
APPLYING = Payload(**OPTIONS, on_truncate=OnTruncate.APPLY)
ROWS_MICROS = 7


def event(key: str, offset: int, row: int | None, topic: str = "orders") -> Record:
    """A row's event; without a row it is deleted."""
    op = "d" if row is None else "u"
    value = {"op": op, "after": None if row is None else {"id": row}}
    return at(topic, offset, key.encode(), value)


def truncate(offset: int, topic: str = "orders") -> Record:
    return at(topic, offset, None, {"op": "t", "before": None, "after": None})


def at(topic: str, offset: int, key: bytes | None, value: Any, partition: int = 0) -> Record:
    when = WHEN.replace(microsecond=offset * ROWS_MICROS)
    return topic, partition, offset, when, key, json.dumps(value).encode()


def take(
    session: SparkSession, table: Table, *records: Record, payload: Payload = APPLYING
) -> None:
    from pipeline.tables.job import bring_in

    bring_in(frame(session, records), table, payload, NOTHING)


def rows(table: Table) -> dict[tuple[str, str], int]:
    return {(row["_topic"], row["key"]): row["id"] for row in table.read().collect()}


@pytest.mark.parametrize("kind", KINDS)
def test_it_deletes_the_rows_of_its_topic_that_are_older(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = table_at(kind, session, tmp_path / "table")
    take(session, table, event("a", 0, 1), event("b", 1, 2), event("a", 0, 9, "others"))
    assert rows(table) == {("orders", "a"): 1, ("orders", "b"): 2, ("others", "a"): 9}

    take(session, table, event("a", 2, 3), event("c", 3, 4), truncate(4), event("c", 5, 5))
    assert rows(table) == {("orders", "c"): 5, ("others", "a"): 9}

    take(session, table, truncate(6))
    assert rows(table) == {("others", "a"): 9}
    held = table.held()
    assert held is not None
    assert held.offsets == {"orders": {0: 7}, "others": {0: 1}}


@pytest.mark.parametrize("writer", WRITERS)
def test_it_is_found_in_each_format_of_events(session: SparkSession, writer: str) -> None:
    from pipeline.tables.events.truncations import Truncation, truncations_in

    said = [event_of("c", {"id": 7, "note": "hi"}), event_of("t", None)]
    values = [*map(WRITERS[writer], said), b"no event", None]
    records: list[Record] = [
        ("orders", 0, offset, WHEN, None, value) for offset, value in enumerate(values)
    ]
    payload = payload_for(writer, on_truncate=OnTruncate.APPLY)
    found = truncations_in(frame(session, records), payload, NOTHING)
    assert found == [Truncation("orders", 0, 1, int(WHEN.timestamp()) * 10**6)]


def test_a_first_micro_batch_may_have_several(session: SparkSession, tmp_path: Path) -> None:
    table = table_at("delta", session, tmp_path / "table")
    take(
        session,
        table,
        truncate(0),
        event("a", 1, 1),
        truncate(2),
        event("b", 3, 2),
        event("a", 4, None),
        truncate(5),
        event("c", 6, 3),
    )
    assert rows(table) == {("orders", "c"): 3}


def test_a_value_before_it_that_cannot_be_parsed_no_longer_matters(
    session: SparkSession, tmp_path: Path
) -> None:
    table = table_at("parquet", session, tmp_path / "table")
    take(session, table, at("orders", 0, b"a", "no event"), truncate(1), event("b", 2, 1))
    assert rows(table) == {("orders", "b"): 1}


@pytest.mark.parametrize("kind", MERGED_KINDS)
def test_a_history_ends_each_value_at_the_truncation(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = table_at(kind, session, tmp_path / "table", is_history=True)
    payload = Payload(**OPTIONS, on_truncate=OnTruncate.APPLY, history=True)
    take(session, table, event("a", 0, 1), event("b", 1, 2), payload=payload)
    take(
        session,
        table,
        event("a", 2, 3),
        truncate(3),
        event("c", 4, 4),
        truncate(5),
        event("a", 6, 5),
        payload=payload,
    )
    found = {
        (row["key"], row["id"]): (row["_valid_to_offset"], micros(row["_valid_to"]))
        for row in table.read().collect()
    }
    assert found == {
        ("a", 1): (2, 2 * ROWS_MICROS),
        ("b", 2): (3, 3 * ROWS_MICROS),
        ("a", 3): (3, 3 * ROWS_MICROS),
        ("c", 4): (5, 5 * ROWS_MICROS),
        ("a", 5): (None, None),
    }


def micros(when: datetime | None) -> int | None:
    return None if when is None else when.microsecond


@pytest.mark.parametrize("kind", KINDS)
def test_rows_whose_key_gets_a_wider_type_are_deleted(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    def take_with(key: str, *records: Record) -> None:
        options = OPTIONS | {"key_format": PayloadFormat.JSON, "key_schema": f"k {key}"}
        payload = Payload(**options, on_truncate=OnTruncate.APPLY)
        table = table_at(kind, session, tmp_path / "table", evolution=Evolution.ALL)
        take(session, table, *records, payload=payload)

    take_with("INT", event('{"k": 1}', 0, 1), event('{"k": 2}', 1, 2))
    take_with("BIGINT", truncate(2), event('{"k": 5000000000}', 3, 3))
    found = table_at(kind, session, tmp_path / "table").read().collect()
    assert [(row["key"]["k"], row["id"]) for row in found] == [(5_000_000_000, 3)]


def test_a_record_without_a_key_whose_schema_is_not_known_may_be_one(
    session: SparkSession,
) -> None:
    from pipeline.tables.events.truncations import truncations_in

    registry = FakeRegistry()
    with registry.served():
        payload = payload_for(
            "avro",
            registry=registry_access([registry.url], None),
            on_truncate=OnTruncate.APPLY,
            on_unparsable=OnUnparsable.KEEP,
        )
        records: list[Record] = [("orders", 0, 3, WHEN, None, with_header(77, b"x"))]
        with pytest.raises(
            TableRefused, match=r"orders-0, offset 3: .* whether it is a truncation"
        ):
            truncations_in(frame(session, records), payload, NOTHING)


def test_a_value_from_before_it_is_not_filled_in(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    table = table_at("delta", session, tmp_path / "table")
    options = OPTIONS | {"value_schema": "id INT, doc STRING"}
    payload = Payload(**options, on_truncate=OnTruncate.APPLY, on_unavailable=OnUnavailable.FILL)

    def update(offset: int, doc: str | None) -> Record:
        said = "__debezium_unavailable_value" if doc is None else doc
        return at("orders", offset, b"a", {"op": "u", "after": {"id": offset, "doc": said}})

    take(session, table, update(0, "early"), update(1, None), payload=payload)
    take(session, table, truncate(2), update(3, "late"), update(4, None), payload=payload)
    assert [(row["id"], row["doc"]) for row in table.read().collect()] == [(4, "late")]
    with pytest.raises(PySparkException, match="offset 6: the database did not send the value of"):
        take(session, table, truncate(5), update(6, None), payload=payload)


REFUSED = {
    "without_the_option": (
        Payload(**OPTIONS),
        "offset 3: the record has no key: .*--on-truncate apply deletes the rows",
    ),
    "as_a_record_without_a_key_to_skip": (
        Payload(**OPTIONS, on_missing_key=OnMissingKey.SKIP),
        "orders-0, offset 3: the database's table was truncated: --on-truncate apply deletes its rows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_without_the_option_the_job_ends_and_nothing_is_written(
    session: SparkSession, tmp_path: Path, case: str
) -> None:
    from pyspark.errors import PySparkException

    payload, says = REFUSED[case]
    table = table_at("delta", session, tmp_path / "table")
    take(session, table, event("a", 2, 1), payload=payload)
    with pytest.raises((TableRefused, PySparkException), match=says):
        take(session, table, truncate(3), event("a", 4, 2), payload=payload)
    assert rows(table) == {("orders", "a"): 1}


def test_a_topic_with_several_partitions_is_refused(session: SparkSession, tmp_path: Path) -> None:
    table = table_at("delta", session, tmp_path / "table")
    other = at("orders", 0, b"a", {"op": "u", "after": {"id": 1}}, partition=1)
    take(session, table, other)
    with pytest.raises(TableRefused, match=r"orders-0, offset 3: .* its topic has 2 partitions"):
        take(session, table, truncate(3))
    assert rows(table) == {("orders", "a"): 1}


def test_other_records_without_a_key_are_none(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    table = table_at("delta", session, tmp_path / "table")
    others = [at("orders", 1, None, {"op": "c", "after": {"id": 1}}), at("orders", 2, None, 7)]
    for other in others:
        with pytest.raises(PySparkException, match="the record has no key"):
            take(session, table, event("a", 0, 1), other)
    skipping = Payload(
        **OPTIONS,
        on_truncate=OnTruncate.APPLY,
        on_missing_key=OnMissingKey.SKIP,
        on_unparsable=OnUnparsable.KEEP,
    )
    take(session, table, event("a", 0, 1), *others, truncate(3), payload=skipping)
    take(session, table, event("b", 4, 2), payload=skipping)
    assert rows(table) == {("orders", "b"): 2}


def test_it_goes_with_the_envelope_only() -> None:
    with pytest.raises(TableRefused, match="--on-truncate apply goes with --envelope debezium"):
        Payload(on_truncate=OnTruncate.APPLY)


def test_random_truncations_in_random_micro_batches_leave_the_rows_of_the_database(
    session: SparkSession, tmp_path: Path
) -> None:
    choices = random.Random(3)
    database: dict[tuple[str, str], int] = {}
    states: list[dict[tuple[str, str], int]] = []
    events: list[Record] = []
    for offset in range(100):
        events.append(change(database, offset, choices))
        states.append(dict(database))

    table = table_at("delta", session, tmp_path / "table")
    done = 0
    while done < len(events):
        end = min(len(events), done + choices.randrange(1, 40))
        take(session, table, *events[choices.randrange(max(0, done - 5), done + 1) : end])
        assert rows(table) == states[end - 1]
        done = end


def change(database: dict[tuple[str, str], int], offset: int, choices: random.Random) -> Record:
    """Change a row or remove all of them, and return the event."""
    if choices.random() < 0.08:
        database.clear()
        return truncate(offset)
    key = choices.choice("abcdef")
    if choices.random() < 0.2:
        database.pop(("orders", key), None)
        return event(key, offset, None)
    database["orders", key] = offset
    return event(key, offset, offset)

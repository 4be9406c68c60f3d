"""Events of Debezium as rows: what they leave, what they delete, and what of them is not known."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest

from pipeline.export.columns.reader import RowReader
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Envelope, Payload, PayloadFormat
from pipeline.tables.registry_options import registry_access
from tests.harness.fake_registry import FakeRegistry, with_header
from tests.pipeline.export.columns.reading import reasons, rows, rows_read
from tests.pipeline.tables.events.test_event_rows import (
    BROKEN,
    CREATED,
    DELETED,
    NO_EVENTS,
    PLAIN,
    READ,
    UNAVAILABLE,
    UPDATED,
    WIDER,
    WRITERS,
    YO,
    Event,
    event,
    in_avro,
    in_json,
    payload_for,
)

NO_EVENT = "the value is no event of Debezium of this schema"


@pytest.mark.parametrize("writer", WRITERS)
def test_an_event_leaves_its_row_or_deletes_it(writer: str) -> None:
    sent = [WRITERS[writer](each) for each in (CREATED, READ, UPDATED, DELETED)]
    found = rows_read(payload_for(writer), [*sent, None])

    assert found.columns.schema.names == ["key", "id", "note"]
    assert found.columns.column("id").to_pylist() == [7, 8, 7, None, None]
    assert found.columns.column("note").to_pylist() == ["hi", None, "yo", None, None]
    assert found.columns.column("key").to_pylist() == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    assert found.deletes.tolist() == [False, False, False, True, True]
    assert found.refused == ()


@pytest.mark.parametrize("writer", WRITERS)
def test_an_event_whose_row_is_not_known_is_refused(writer: str) -> None:
    sent = [WRITERS[writer](each) for each, _ in BROKEN]
    found = reasons(payload_for(writer), WRITERS[writer](CREATED), *sent)
    assert found == [None, *(says for _, says in BROKEN)]


def test_a_value_that_is_no_event_is_refused() -> None:
    sent = [*NO_EVENTS, b'{"op": null, "after": {"id": 7}}', b'{"op": 0.1234567890123456}']
    assert reasons(payload_for("json"), *sent) == [NO_EVENT] * len(sent)
    assert reasons(payload_for("avro"), b"", b"\xff") == [NO_EVENT] * 2
    assert not rows_read(payload_for("json"), sent).deletes.any()


def test_an_operation_may_be_a_number_which_is_not_known() -> None:
    assert reasons(payload_for("json"), b'{"op": 5, "after": {"id": 7}}') == [
        "an event with op=5 is not known here"
    ]


def test_a_row_that_does_not_fit_its_columns_makes_the_value_no_event() -> None:
    payload = payload_for("json", value_schema="id BIGINT, at DATE")
    sent = in_json(event("c", {"id": 7, "at": "2024-13-01"}))
    assert reasons(payload, sent, in_json(event("c", {"id": 8}))) == [NO_EVENT, None]


WHOLE: Event = {"s": "x", "b": "eHg=", "l": ["x"], "m": {"x": "x"}, "i": 1, "r": {"x": "x"}}
COLUMNS = (
    "s STRING, b BINARY, l ARRAY<STRING>, m MAP<STRING, STRING>, i INT, ints ARRAY<INT>,"
    " decimals ARRAY<DECIMAL(20, 0)>, r STRUCT<x: STRING>, rows ARRAY<STRUCT<l: ARRAY<STRING>>>"
)


def test_the_placeholder_is_found_in_each_type_that_it_has() -> None:
    data, numbers = b64encode(UNAVAILABLE.encode()).decode(), list(UNAVAILABLE.encode())
    uuid = str(UUID(bytes=md5(UNAVAILABLE.encode()).digest(), version=3))
    gone: list[Event] = [
        {"s": UNAVAILABLE},
        {"s": json.dumps({UNAVAILABLE: UNAVAILABLE})},
        {"s": data},
        {"s": uuid},
        {"b": data},
        {"l": ["x", UNAVAILABLE]},
        {"m": {UNAVAILABLE: UNAVAILABLE}},
        {"ints": numbers},
        {"decimals": numbers},
        {"r": {"x": UNAVAILABLE}},
        {"rows": [{"l": []}, {"l": ["x", UNAVAILABLE]}]},
    ]
    kept: list[Event] = [
        {},
        {"ints": numbers[1:]},
        {"l": None, "m": None, "r": None, "s": None},
        {"rows": [None, {"l": None}]},
    ]
    payload = payload_for("json", value_schema=COLUMNS)
    sent = [in_json(event("u", WHOLE | each)) for each in (*kept, *gone)]

    found = reasons(payload, *sent)

    assert found[: len(kept)] == [None] * len(kept)
    assert [each and each.partition(",")[0] for each in found[len(kept) :]] == [
        f"the database did not send the value of {next(iter(each))}" for each in gone
    ]


def test_a_connector_may_have_another_placeholder() -> None:
    (reason,) = reasons(
        payload_for("json", unavailable="?"), in_json(event("u", {"id": 7, "note": "?"}))
    )
    assert reason is not None
    assert "did not send the value of note" in reason


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, and 2, whose row has one more column and whose source is another."""
    fake = FakeRegistry()
    fake.add(json.dumps(PLAIN))
    fake.add(json.dumps(WIDER))
    with fake.served():
        yield fake


def registered(registry: FakeRegistry, schema: dict[str, Any]) -> Payload:
    access = registry_access([registry.url], None)
    return payload_for("avro", value_schema=json.dumps(schema), registry=access)


def test_events_are_read_by_the_schemas_of_their_writers(registry: FakeRegistry) -> None:
    wider = event("u", YO | {"city": "Rome"}) | {"source": {"at": "x"}}
    sent = with_header(1, in_avro(CREATED)), with_header(2, in_avro(wider, WIDER))

    assert rows(registered(registry, WIDER), *sent) == [
        {"id": 7, "note": "hi", "city": None},
        {"id": 7, "note": "yo", "city": "Rome"},
    ]
    assert rows(registered(registry, PLAIN), *sent)[1] == {"id": 7, "note": "yo"}


def test_an_event_of_an_unknown_schema_says_which(registry: FakeRegistry) -> None:
    sent = with_header(9, in_avro(CREATED)), in_avro(UPDATED)
    unknown, bare = reasons(registered(registry, PLAIN), *sent)
    assert unknown is not None
    assert unknown.startswith("the value has the schema with id 9: the registry at")
    assert bare == "the value does not name a schema"


def test_events_may_be_json_of_a_registry(registry: FakeRegistry) -> None:
    number = registry.add('{"type": "object"}', "JSON")
    payload = replace(
        payload_for("json"),
        value_format=PayloadFormat.JSON_SCHEMA,
        registry=registry_access([registry.url], None),
    )
    assert rows(payload, with_header(number, in_json(CREATED))) == [{"id": 7, "note": "hi"}]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ('"string"', "not that of an event of Debezium: it is no record in Avro"),
        (json.dumps({"type": "record", "name": "R", "fields": []}), "it has no field op"),
        (
            json.dumps(
                PLAIN | {"fields": [*PLAIN["fields"][2:], {"name": "after", "type": "int"}]}
            ),
            "`after` is no record",
        ),
        (
            json.dumps(PLAIN | {"fields": [*PLAIN["fields"][:2], {"name": "op", "type": "int"}]}),
            "`op` is no text",
        ),
    ],
)
def test_a_schema_that_is_not_an_events_is_one_sentence(schema: str, sentence: str) -> None:
    with pytest.raises(TableRefused, match=sentence):
        RowReader(payload_for("avro", value_schema=schema))


def test_events_in_json_need_the_schema_of_a_row() -> None:
    with pytest.raises(TableRefused, match="values in json need --value-schema"):
        RowReader(Payload(value_format=PayloadFormat.JSON, envelope=Envelope.DEBEZIUM))

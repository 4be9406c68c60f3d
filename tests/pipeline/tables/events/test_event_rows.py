"""Tables of the change events that Debezium writes, in Avro and in JSON."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.avro_fields import with_former_names
from pipeline.tables.payload_options import Envelope, OnUnparsable, Payload, PayloadFormat
from pipeline.tables.registry_options import reader_schema, registry_access
from schemas.schema import SchemaType
from tests.harness.fake_registry import FakeRegistry, with_header
from tests.pipeline.table_model import NOTHING, frame, record

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

UNAVAILABLE = "__debezium_unavailable_value"
Event = dict[str, Any]


def envelope(*more: Event, source: Event | None = None) -> dict[str, Any]:
    """The schema of events as Debezium registers it: `after` names the type that `before` defines."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            *more,
        ],
        "connect.name": "shop.public.orders.Value",
    }
    origin = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [{"name": "lsn", "type": ["null", "long"], "default": None}],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source or origin},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.name": "shop.public.orders.Envelope",
    }


PLAIN = envelope()


def event(op: str, after: Event | None, before: Event | None = None) -> Event:
    return {"before": before, "after": after, "source": {"lsn": 1}, "op": op, "ts_ms": 5}


HI, YO = {"id": 7, "note": "hi"}, {"id": 7, "note": "yo"}
CREATED, READ = event("c", HI), event("r", {"id": 8, "note": None})
UPDATED, DELETED = event("u", YO, HI), event("d", None, YO)


def in_avro(sent: Event, schema: Event = PLAIN) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), sent)
    return written.getvalue()


def in_json(sent: Event) -> bytes:
    return json.dumps(sent).encode()


def in_connects_json(sent: Event) -> bytes:
    return json.dumps({"schema": {"type": "struct"}, "payload": sent}).encode()


WRITERS = {"avro": in_avro, "json": in_json, "json with its schema": in_connects_json}


def payload_for(writer: str, **settings: Any) -> Payload:
    kind = PayloadFormat.AVRO if writer == "avro" else PayloadFormat.JSON
    schema = json.dumps(PLAIN) if writer == "avro" else "id BIGINT, note STRING"
    said = {"value_format": kind, "value_schema": schema, "envelope": Envelope.DEBEZIUM}
    return Payload(**{**said, **settings})


def rows(session: SparkSession, payload: Payload, *values: bytes | None) -> list[Row]:
    """One record for each value, with the offsets 0, 1, ..."""
    from pipeline.tables.payload import rows_of

    records = [record(0, offset, b"k%d" % offset, value) for offset, value in enumerate(values)]
    return list(rows_of(frame(session, records), payload, None).orderBy("_offset").collect())


@pytest.mark.parametrize("writer", WRITERS)
def test_an_event_leaves_its_row_or_deletes_it(session: SparkSession, writer: str) -> None:
    sent = [WRITERS[writer](each) for each in (CREATED, READ, UPDATED, DELETED)]
    found = rows(session, payload_for(writer), *sent, None)

    assert [(row["id"], row["note"]) for row in found[:3]] == [(7, "hi"), (8, None), (7, "yo")]
    assert [row["_tombstone"] for row in found] == [False, False, False, True, True]
    assert found[0].asDict().keys() >= {"key", "id", "note", "_offset"}
    assert "op" not in found[0].asDict()


@pytest.mark.parametrize("writer", ["avro", "json"])
def test_a_stream_follows_a_table_of_a_database(
    session: SparkSession, tmp_path: Path, writer: str
) -> None:
    from pipeline.tables.formats.delta_table import DeltaTable
    from pipeline.tables.job import bring_in

    table, write = DeltaTable(session, str(tmp_path / "t")), WRITERS[writer]
    batches = [
        [record(0, 0, b"7", write(CREATED)), record(0, 1, b"8", write(READ))],
        [record(0, 2, b"7", write(UPDATED)), record(0, 3, b"8", write(DELETED))],
        [record(0, 4, b"8", None), record(0, 5, b"7", write(DELETED)), record(0, 6, b"7", None)],
    ]
    found = []
    for batch in batches:
        bring_in(frame(session, batch), table, payload_for(writer), NOTHING)
        found.append({row["id"]: row["note"] for row in table.read().collect()})

    assert found == [{7: "hi", 8: None}, {7: "yo"}, {}]


def test_without_a_schema_the_rows_of_json_have_the_columns_of_all_events(
    session: SparkSession,
) -> None:
    sent = in_json(CREATED), in_connects_json(event("c", {"id": 9, "more": 1.5})), in_json(DELETED)
    first, second, last = rows(session, payload_for("json", value_schema=None), *sent)

    assert (first["id"], first["note"], first["more"]) == (7, "hi", None)
    assert (second["id"], second["more"], last["_tombstone"]) == (9, 1.5, True)


BROKEN: list[tuple[Event, str]] = [
    (event("t", None), "an event with op=t is not known here"),
    (event("m", None), "an event with op=m is not known here"),
    (event("u", None, HI), "an event leaves a row, and has none in `after`"),
    (
        event("u", {"id": 7, "note": UNAVAILABLE}),
        "the database did not send the value of note, which had not changed: let it send whole rows"
        " (in PostgreSQL: REPLICA IDENTITY FULL)",
    ),
]


@pytest.mark.parametrize(("sent", "says"), BROKEN)
def test_an_event_whose_row_is_not_known_ends_the_job(
    session: SparkSession, sent: Event, says: str
) -> None:
    with pytest.raises(Exception, match="orders-0, offset 1") as failure:
        rows(session, payload_for("avro"), in_avro(CREATED), in_avro(sent))
    assert cause(failure.value) == f"orders-0, offset 1: {says}"


@pytest.mark.parametrize("writer", WRITERS)
def test_an_event_whose_row_is_not_known_is_kept_if_the_user_says_so(
    session: SparkSession, writer: str
) -> None:
    bad = [WRITERS[writer](sent) for sent, _ in BROKEN]
    payload = payload_for(writer, on_unparsable=OnUnparsable.KEEP)

    good, *others = rows(session, payload, WRITERS[writer](CREATED), *bad)

    assert (good["id"], good["_unparsed"]) == (7, None)
    assert [row["_unparsed"] for row in others] == bad
    assert {(row["id"], row["_tombstone"]) for row in others} == {(None, False)}


NO_EVENTS = [b"no JSON", b'{"id": 7}', b'{"payload": {"id": 7}}', b"[]", b"null", b""]
NO_EVENTS += [b'{"op": "c", "after": {"id": "seven"}}', b'{"op": "c", "after": 7}']


def test_a_value_that_is_no_event_is_not_parsed(session: SparkSession) -> None:
    payload = payload_for("json", on_unparsable=OnUnparsable.KEEP)
    assert [row["_unparsed"] for row in rows(session, payload, *NO_EVENTS)] == NO_EVENTS
    with pytest.raises(Exception, match="offset 0: the value is no event of Debezium"):
        rows(session, payload_for("json"), NO_EVENTS[1])


def test_the_placeholder_is_found_in_each_type_that_it_has(session: SparkSession) -> None:
    text, data = UNAVAILABLE, b64encode(UNAVAILABLE.encode()).decode()
    numbers = list(UNAVAILABLE.encode())
    uuid = str(UUID(bytes=md5(UNAVAILABLE.encode()).digest(), version=3))
    whole: Event = {
        "s": "x",
        "b": "eHg=",
        "n": "eHg=",
        "l": ["x"],
        "m": {"x": "x"},
        "i": 1,
        "ints": numbers[1:],
        "longs": numbers[:-1],
        "ids": [uuid[1:]],
        "r": {"x": "x"},
    }
    gone: list[Event] = [
        {"s": text},
        {"s": json.dumps({text: text})},
        {"b": data},
        {"n": data},
        {"l": [text]},
        {"m": {text: text}},
        {"ints": numbers},
        {"longs": numbers},
        {"ids": [uuid]},
        {"r": {"x": text}},
    ]
    schema = (
        "s STRING, b BINARY, n STRING, l ARRAY<STRING>, m MAP<STRING, STRING>, i INT,"
        " ints ARRAY<INT>, longs ARRAY<BIGINT>, ids ARRAY<STRING>, r STRUCT<x: STRING>"
    )
    payload = payload_for("json", value_schema=schema, on_unparsable=OnUnparsable.KEEP)
    sent = [in_json(event("u", whole | each)) for each in gone]

    good, *bad = rows(session, payload, in_json(event("u", whole)), *sent)

    assert (good["_unparsed"], bytes(good["b"])) == (None, b"xx")
    assert [row["_unparsed"] for row in bad] == sent


def test_a_connector_may_have_another_placeholder(session: SparkSession) -> None:
    sent = in_json(event("u", {"id": 7, "note": "?"}))
    with pytest.raises(Exception, match="did not send the value of note"):
        rows(session, payload_for("json", unavailable="?"), sent)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, and 2, whose row has one more column and whose source is another."""
    fake = FakeRegistry()
    fake.add(json.dumps(PLAIN), subject="orders-value")
    fake.add(json.dumps(WIDER), subject="orders-value")
    with fake.served():
        yield fake


WIDER = envelope(
    {"name": "city", "type": ["null", "string"], "default": None},
    source={"type": "record", "name": "other.Source", "fields": [{"name": "at", "type": "string"}]},
)


def test_the_newest_schema_of_a_subject_reads_the_events_of_all(
    session: SparkSession, registry: FakeRegistry
) -> None:
    access = registry_access([registry.url], None)
    schema = reader_schema("--value-schema", "subject:orders-value", SchemaType.AVRO, access)
    payload = payload_for("avro", value_schema=schema.text, registry=access)
    wider = event("u", YO | {"city": "Rome"}) | {"source": {"at": "x"}}
    sent = with_header(1, in_avro(CREATED)), with_header(2, in_avro(wider, WIDER))

    first, second = rows(session, payload, *sent)

    assert (first["note"], first["city"]) == ("hi", None)
    assert (second["note"], second["city"]) == ("yo", "Rome")


def test_a_field_that_an_older_writer_lacks_is_named(
    session: SparkSession, registry: FakeRegistry
) -> None:
    """Such as after a column that may not be null got another name."""
    needing = envelope({"name": "city", "type": "string"})
    access = registry_access([registry.url], None)
    payload = payload_for("avro", value_schema=json.dumps(needing), registry=access)
    gone = event("d", None, YO)
    sent = with_header(1, in_avro(gone)), with_header(1, in_avro(CREATED))

    assert [row["_tombstone"] for row in rows(session, payload, sent[0])] == [True]
    says = "orders-0, offset 1: the value has the schema with id 1: it lacks the field after.city"
    with pytest.raises(Exception, match=says):
        rows(session, payload, *sent)


def test_a_column_is_read_by_the_name_that_it_had(
    session: SparkSession, registry: FakeRegistry
) -> None:
    access = registry_access([registry.url], None)
    text = json.dumps(PLAIN).replace('"note"', '"remark"')
    schema = with_former_names(text, Envelope.DEBEZIUM, {"note": "remark"})
    payload = payload_for("avro", value_schema=schema, registry=access)

    (row,) = rows(session, payload, with_header(1, in_avro(CREATED)))

    assert (row["id"], row["remark"]) == (7, "hi")


def test_an_older_schema_of_a_subject_reads_the_events_of_a_later_one(
    session: SparkSession, registry: FakeRegistry
) -> None:
    access = registry_access([registry.url], None)
    payload = payload_for("avro", registry=access)
    wider = event("u", YO | {"city": "Rome"}) | {"source": {"at": "x"}}

    (row,) = rows(session, payload, with_header(2, in_avro(wider, WIDER)))

    assert (row["id"], row["note"]) == (7, "yo")


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
    ],
)
def test_a_schema_that_is_not_an_events_is_one_sentence(
    session: SparkSession, schema: str, sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence):
        rows(session, payload_for("avro", value_schema=schema), b"\0")


def test_a_record_without_a_key_may_be_a_truncation(session: SparkSession) -> None:
    from pipeline.tables.keys import having_keys

    records = frame(session, [record(0, 3, None, in_json(event("t", None)))])
    with pytest.raises(Exception, match="offset 3") as failure:
        having_keys(records, payload_for("json")).collect()
    assert "its table has no primary key" in cause(failure.value)
    assert "for a TRUNCATE (skipped.operations=t" in cause(failure.value)


def test_an_envelope_needs_values_that_have_fields() -> None:
    with pytest.raises(TableRefused, match="--envelope debezium goes with values in Avro or JSON"):
        Payload(envelope=Envelope.DEBEZIUM)

"""Bytes, JSON and Avro as columns, and values that cannot be parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.offsets.cut import TableRefused
from pipeline.spark.job import cause
from pipeline.tables.payload_options import OnUnparsable, Payload, PayloadFormat
from pipeline.tables.registry_options import registry_access
from tests.harness.fake_registry import FakeRegistry, Referred, send
from tests.pipeline.table_model import WHEN, frame, record

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
AGED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "age", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
WITH_AGE = b"\x10\x00\x02\x04yo"
"""Avro: id 8, age 0, note `yo`. Read as an order without an age it is one without a note."""
ORDER = b"\x0e\x02\x04hi"
"""Avro: id 7, note `hi`."""
ALL_NULL = json.dumps(
    {"type": "record", "name": "N", "fields": [{"name": "a", "type": ["null", "long"]}]}
)


def rows(session: SparkSession, payload: Payload, *values: bytes | None) -> list[Row]:
    """One record for each value, with the offsets 0, 1, ..."""
    from pipeline.tables.payload import rows_of

    records = [record(0, offset, b"k%d" % offset, value) for offset, value in enumerate(values)]
    return list(rows_of(frame(session, records), payload, None).orderBy("_offset").collect())


def test_bytes_are_the_default_and_say_where_they_come_from(session: SparkSession) -> None:
    first, second = rows(session, Payload(), b"v", None)

    assert first.asDict() == {
        "key": b"k0",
        "value": b"v",
        "_topic": "orders",
        "_partition": 0,
        "_offset": 0,
        "_timestamp": WHEN.replace(tzinfo=None),
        "_tombstone": False,
    }
    assert second["_tombstone"]


def test_json_becomes_columns_with_the_schema_that_is_given_or_inferred(
    session: SparkSession,
) -> None:
    given = Payload(
        value_format=PayloadFormat.JSON,
        value_schema="id INT, `a b` STRING",
        key_format=PayloadFormat.STRING,
        key_column="name",
    )
    inferred = Payload(value_format=PayloadFormat.JSON)

    (row,) = rows(session, given, b'{"id": 7, "a b": "x", "more": 1}')
    assert (row["name"], row["id"], row["a b"]) == ("k0", 7, "x")
    one, two, dead = rows(session, inferred, b'{"id": 7}', b'{"other": [1.5]}', None)
    assert (one["id"], two["other"], dead["_tombstone"]) == (7, [1.5], True)


def avro(**settings: Any) -> Payload:
    return Payload(value_format=PayloadFormat.AVRO, value_schema=AVRO, **settings)


def named(schema_id: int, value: bytes) -> bytes:
    """A value that names its schema."""
    return b"\0" + schema_id.to_bytes(4) + value


def test_avro_becomes_columns_with_confluents_header_or_without(session: SparkSession) -> None:
    (row,) = rows(session, avro(), ORDER)
    assert (row["id"], row["note"]) == (7, "hi")
    (row,) = rows(session, avro(schema_ids=(42,)), named(42, ORDER))
    assert (row["id"], row["note"]) == (7, "hi")


def test_a_value_of_another_schema_ends_the_job_before_anything_is_read(
    session: SparkSession,
) -> None:
    values = [named(42, ORDER), named(43, WITH_AGE), named(43, WITH_AGE)]

    with pytest.raises(TableRefused) as refused:
        rows(session, avro(schema_ids=(42, 41)), *values)
    assert str(refused.value) == (
        "orders-0, offset 1: the value has the schema with id 43: --value-schema is that of 41, 42"
        " (--schema-id)"
    )
    kept = avro(schema_ids=(42,), on_unparsable=OnUnparsable.KEEP)
    assert [row["_unparsed"] for row in rows(session, kept, *values)] == [None, *values[1:]]


def test_a_value_without_a_header_is_not_parsed(session: SparkSession) -> None:
    payload = avro(schema_ids=(42,), on_unparsable=OnUnparsable.KEEP)
    wrong = [ORDER, b"", b"\0\0\0\0\x2a", b"\1\0\0\0\x2a" + ORDER]

    assert [row["_unparsed"] for row in rows(session, payload, *wrong)] == wrong


MORE = [
    json.dumps({"type": "record", "name": "N", "fields": []}),
    '"long"',
    '["null", "long"]',
    '{"type": "array", "items": "long"}',
]
"""Schemas of which a zero byte is a whole value, except for the first one's."""


@pytest.mark.parametrize("schema", MORE)
def test_bytes_that_are_left_over_are_an_error(session: SparkSession, schema: str) -> None:
    payload = Payload(
        value_format=PayloadFormat.AVRO, value_schema=schema, on_unparsable=OnUnparsable.KEEP
    )
    fits = b"" if schema == MORE[0] else b"\0"

    good, *longer = rows(session, payload, fits, fits + b"\0", fits + bytes(16), fits + b"more")

    assert good["_unparsed"] is None
    assert [row["_unparsed"] for row in longer] == [fits + b"\0", fits + bytes(16), fits + b"more"]


def test_a_field_that_the_user_does_not_know_ends_a_job_without_a_registry(
    session: SparkSession,
) -> None:
    written = json.loads(AVRO)
    written["fields"] = written["fields"][:1]
    payload = Payload(value_format=PayloadFormat.AVRO, value_schema=json.dumps(written))

    with pytest.raises(Exception, match="orders-0, offset 0: the value is not avro of this schema"):
        rows(session, payload, ORDER)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, {id, note}, and 2, {id, age, note}."""
    fake = FakeRegistry()
    fake.add(AVRO)
    fake.add(AGED)
    with fake.served():
        yield fake


def read_by(registry: FakeRegistry, **settings: Any) -> Payload:
    access = registry_access([registry.url], None)
    return avro(registry=access, **settings)


def test_each_value_is_read_by_the_schema_of_its_writer(
    session: SparkSession, registry: FakeRegistry
) -> None:
    first, second, dead = rows(
        session, read_by(registry), named(1, ORDER), named(2, WITH_AGE), None
    )

    assert (first["id"], first["note"]) == (7, "hi")
    # Read by the schema of the user alone, the note would be something else, or nothing.
    assert (second["id"], second["note"]) == (8, "yo")
    assert dead["_tombstone"]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    rows(session, read_by(registry), named(2, WITH_AGE))
    assert len(registry.asked) == 2


def test_a_column_that_the_writer_does_not_have_is_an_error_and_no_null(
    session: SparkSession, registry: FakeRegistry
) -> None:
    payload = replace(read_by(registry), value_schema=AGED)

    with pytest.raises(Exception, match="orders-0, offset 1") as failure:
        rows(session, payload, named(2, WITH_AGE), named(1, ORDER))
    why = "it lacks the field age, for which --value-schema has no default"
    says = f"orders-0, offset 1: the value has the schema with id 1: {why}"
    assert cause(failure.value) == says


def test_a_schema_that_the_registry_does_not_have_is_named_with_the_value(
    session: SparkSession, registry: FakeRegistry
) -> None:
    with pytest.raises(TableRefused, match="offset 1: the value has the schema with id 9: "):
        rows(session, read_by(registry), named(1, ORDER), named(9, ORDER))
    kept = read_by(registry, on_unparsable=OnUnparsable.KEEP)
    good, bad = rows(session, kept, named(1, ORDER), named(9, ORDER))
    assert (good["_unparsed"], bad["_unparsed"]) == (None, named(9, ORDER))


def test_why_a_value_has_no_schema_is_said_of_each(
    session: SparkSession, registry: FakeRegistry
) -> None:
    from pipeline.tables.payload import dead_letters_from, parsed_of

    payload = read_by(registry, on_unparsable=OnUnparsable.DEAD_LETTER)
    values = [named(9, ORDER), ORDER, named(1, b"\x09"), named(1, ORDER)]
    records = [record(0, at, b"%d" % at, value) for at, value in enumerate(values)]

    letters = dead_letters_from(parsed_of(frame(session, records), payload, None))

    reasons = [row["reason"] for row in letters.orderBy("offset").collect()]
    assert reasons[0].startswith("the value has the schema with id 9: the registry at")
    assert reasons[1:] == [
        "the value does not name a schema",
        "the value is not avro of this schema",
    ]


def test_without_its_registry_a_job_ends_also_if_it_keeps_what_cannot_be_parsed(
    session: SparkSession,
) -> None:
    access = registry_access(["http://127.0.0.1:1"], None)
    payload = avro(registry=access, on_unparsable=OnUnparsable.KEEP)

    with pytest.raises(TableRefused, match=r"orders-0, offset 0: .* cannot be reached"):
        rows(session, payload, named(1, ORDER))


def test_a_registry_that_fails_ends_a_job_that_keeps_what_cannot_be_parsed(
    session: SparkSession, registry: FakeRegistry
) -> None:
    registry.instead = lambda handler: send(handler, 500, b'{"error_code": 50001}')

    with pytest.raises(
        TableRefused, match="orders-0, offset 0: the value has the schema with id 1"
    ):
        rows(session, read_by(registry, on_unparsable=OnUnparsable.KEEP), named(1, ORDER))


def test_a_registered_schema_may_refer_to_others(
    session: SparkSession, registry: FakeRegistry
) -> None:
    note = json.dumps({"type": "fixed", "name": "x.Note", "size": 2})
    registry.add(note, subject="note")
    both = {"type": "record", "name": "Order", "fields": [{"name": "note", "type": "x.Note"}]}
    schema_id = registry.add(json.dumps(both), refers_to=[Referred("x.Note", "note")])
    whole = both | {"fields": [{"name": "note", "type": json.loads(note)}]}

    (row,) = rows(
        session, replace(read_by(registry), value_schema=json.dumps(whole)), named(schema_id, b"hi")
    )
    assert row["note"] == b"hi"


def test_an_avro_record_of_nulls_is_not_taken_for_one_that_cannot_be_read(
    session: SparkSession,
) -> None:
    payload = Payload(
        value_format=PayloadFormat.AVRO, value_schema=ALL_NULL, on_unparsable=OnUnparsable.KEEP
    )

    nulls, broken = rows(session, payload, b"\x00", b"\x09")

    assert (nulls["a"], nulls["_unparsed"]) == (None, None)
    assert (broken["a"], broken["_unparsed"]) == (None, b"\x09")


NO_ORDERS = [
    b'{"id": 7}x',
    b'{"id": 7} {"id": 8}',
    b"no JSON",
    b'{"id": "text"}',
    b"null",
    b"",
    b"[1]",
    b'{"id": 1, "name": "\xff"}',
]


def test_json_that_does_not_fit_is_kept_as_bytes(session: SparkSession) -> None:
    payload = Payload(
        value_format=PayloadFormat.JSON,
        value_schema="id INT, name STRING",
        on_unparsable=OnUnparsable.KEEP,
    )

    good, *bad = rows(session, payload, b'{"id": 1}', *NO_ORDERS)

    assert (good["id"], good["_unparsed"]) == (1, None)
    assert [(row["id"], row["name"], row["_unparsed"]) for row in bad] == [
        (None, None, value) for value in NO_ORDERS
    ]


def test_json_that_does_not_fit_ends_the_job_with_its_offset(session: SparkSession) -> None:
    payload = Payload(value_format=PayloadFormat.JSON, value_schema="id INT")

    with pytest.raises(Exception, match="orders-0, offset 1") as failure:
        rows(session, payload, b'{"id": 1}', b"no JSON")
    assert cause(failure.value) == "orders-0, offset 1: the value is not json of this schema"


def test_a_key_that_is_no_text_ends_the_job_where_text_was_asked_for(session: SparkSession) -> None:
    from pipeline.tables.payload import rows_of

    payload = Payload(key_format=PayloadFormat.STRING)
    with pytest.raises(Exception, match="orders-0, offset 5: the key is no text"):
        rows_of(frame(session, [record(0, 5, b"\xff", b"v")]), payload, None).collect()


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (Payload(value_format=PayloadFormat.JSON, value_schema="id INTT"), "cannot be read"),
        (Payload(value_format=PayloadFormat.JSON, value_schema="key INT"), "--key-column"),
        (Payload(value_format=PayloadFormat.JSON), "no value is a JSON object"),
        (Payload(value_format=PayloadFormat.AVRO, value_schema="{"), "no Avro schema"),
        (Payload(value_format=PayloadFormat.AVRO, value_schema='"nonsense"'), "--value-schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_one_sentence(
    session: SparkSession, payload: Payload, sentence: str
) -> None:
    with pytest.raises(TableRefused, match=sentence) as refused:
        rows(session, payload, b"text")
    assert "\n" not in str(refused.value)


def test_avro_needs_a_schema_and_its_header_what_the_ids_mean() -> None:
    with pytest.raises(TableRefused, match="need --value-schema"):
        Payload(value_format=PayloadFormat.AVRO)
    with pytest.raises(TableRefused, match="a value of another schema would be misread"):
        avro(confluent_header=True)
    with pytest.raises(TableRefused, match="--schema-id is for values without --schema-registry"):
        avro(schema_ids=(1,), registry=registry_access(["http://registry"], None))

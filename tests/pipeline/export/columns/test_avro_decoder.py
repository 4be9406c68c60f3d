"""Avro as columns: each type, leftover bytes, and the schemas of writers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from pipeline.export.columns.reader import RowReader
from pipeline.offsets.cut import TableRefused
from pipeline.tables.payload_options import Payload, PayloadFormat
from pipeline.tables.registry_options import registry_access
from tests.harness.fake_registry import FakeRegistry, Referred, send, with_header
from tests.pipeline.export.columns.reading import reasons, rows
from tests.pipeline.tables.test_payload import AGED, ALL_NULL, AVRO, MORE, ORDER, WITH_AGE

MISFIT = "the value is not avro of this schema"


def avro(schema: Any, **settings: Any) -> Payload:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Payload(value_format=PayloadFormat.AVRO, value_schema=text, **settings)


def record_of(name: str, **fields: Any) -> dict[str, Any]:
    inner = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": inner}


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_fields_become_columns_with_a_header_or_without() -> None:
    assert rows(avro(AVRO), ORDER, None) == [{"id": 7, "note": "hi"}, {"id": None, "note": None}]
    assert rows(avro(AVRO, schema_ids=(42,)), with_header(42, ORDER))[0]["note"] == "hi"


def test_what_is_no_record_is_one_column() -> None:
    assert rows(avro('"long"'), b"\x0e") == [{"value": 7}]
    assert rows(avro("long"), b"\x0e") == [{"value": 7}]
    assert rows(avro('["null", "long"]'), b"\x00", b"\x02\x0e") == [{"value": None}, {"value": 7}]


def test_a_record_that_is_null_is_refused() -> None:
    assert reasons(avro(["null", json.loads(AVRO)]), b"\x00", b"\x02" + ORDER) == [MISFIT, None]
    assert rows(avro(ALL_NULL), b"\x00") == [{"a": None}]


LOGICAL = record_of(
    "Logical",
    day={"type": "int", "logicalType": "date"},
    millis={"type": "long", "logicalType": "timestamp-millis"},
    micros=["null", {"type": "long", "logicalType": "timestamp-micros"}],
    local={"type": "long", "logicalType": "local-timestamp-millis"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    fixed={"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 3},
    uuid={"type": "string", "logicalType": "uuid"},
)
NOON = datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)


def test_logical_types_have_columns_of_their_own() -> None:
    value = {
        "day": date(2024, 1, 2),
        "millis": NOON,
        "micros": NOON,
        "local": NOON.replace(tzinfo=None),
        "price": Decimal("-1.50"),
        "fixed": Decimal(-2),
        "uuid": "05ba3c1f-9b29-3bc1-b0b7-5e1ea4f4a2f5",
    }
    assert rows(avro(LOGICAL), written(LOGICAL, value)) == [value]


def test_a_value_that_its_column_cannot_have_is_refused() -> None:
    day, long = {"type": "int", "logicalType": "date"}, 1 << 62
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 2}
    schema = record_of("R", a="int", b=day, c=millis, d=price, e="string")
    bare = record_of("R", a="long", b="long", c="long", d="bytes", e="bytes")
    good = {"a": 1, "b": 1, "c": 1, "d": b"\x63", "e": b"x"}
    bad: list[dict[str, Any]] = [{"a": long}, {"b": long}, {"c": long}, {"d": b"\x64"}]
    bad += [{"d": b""}, {"e": b"\xff"}]

    found = reasons(avro(schema), *(written(bare, good | each) for each in ({}, *bad)))

    assert found == [None] + [MISFIT] * len(bad)


def test_types_inside_others_become_nested_columns() -> None:
    line = record_of("Line", n="int", kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]})
    schema = record_of(
        "Order",
        lines={"type": "array", "items": line},
        first=["null", "Line"],
        by_name={"type": "map", "values": ["null", "Line"]},
        hash={"type": "fixed", "name": "Hash", "size": 2},
        number=["int", "long", "null"],
    )
    value = {
        "lines": [{"n": 1, "kind": "A"}, {"n": 2, "kind": "B"}],
        "first": {"n": 3, "kind": "A"},
        "by_name": {"a": {"n": 4, "kind": "A"}, "b": None},
        "hash": b"xx",
        "number": 1 << 40,
    }
    (found,) = rows(avro(schema), written(schema, value))
    assert found == value | {"by_name": list(value["by_name"].items())}  # type: ignore[attr-defined]


@pytest.mark.parametrize("schema", MORE)
def test_bytes_that_are_left_over_are_an_error(schema: str) -> None:
    fits = b"" if schema == MORE[0] else b"\0"
    found = reasons(avro(schema), fits, fits + b"\0", fits + bytes(16), fits + b"more")
    assert found == [None, MISFIT, MISFIT, MISFIT]


def test_bytes_that_are_missing_are_an_error() -> None:
    assert reasons(avro(AVRO), *(ORDER[:end] for end in range(len(ORDER)))) == [MISFIT] * 5


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """With the schemas 1, {id, note}, and 2, {id, age, note}."""
    fake = FakeRegistry()
    fake.add(AVRO)
    fake.add(AGED)
    with fake.served():
        yield fake


def read_by(registry: FakeRegistry, schema: Any = AVRO) -> Payload:
    return avro(schema, registry=registry_access([registry.url], None))


def test_each_value_is_read_by_the_schema_of_its_writer(registry: FakeRegistry) -> None:
    sent = with_header(1, ORDER), with_header(2, WITH_AGE), None
    assert rows(read_by(registry), *sent)[:2] == [{"id": 7, "note": "hi"}, {"id": 8, "note": "yo"}]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    rows(read_by(registry), with_header(2, WITH_AGE))
    assert len(registry.asked) == 2


def test_a_column_that_the_writer_does_not_have_is_an_error_or_its_default(
    registry: FakeRegistry,
) -> None:
    why = "it lacks the field age, for which --value-schema has no default"
    says = f"the value has the schema with id 1: {why}"
    assert reasons(read_by(registry, AGED), with_header(1, ORDER)) == [says]
    aged = json.loads(AGED)
    aged["fields"][1]["default"] = 18
    assert rows(read_by(registry, aged), with_header(1, ORDER))[0]["age"] == 18


def test_a_column_has_the_readers_type_and_name(registry: FakeRegistry) -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    wrote = record_of("R", n="int", at=millis, old="string", data="string")
    reads = record_of("R", n="double", at=micros, new="string", data="bytes")
    reads["fields"][2]["aliases"] = ["old"]
    number = registry.add(json.dumps(wrote))
    value = written(wrote, {"n": 5, "at": 7, "old": "x", "data": "y"})

    (found,) = rows(read_by(registry, reads), with_header(number, value))

    # As in Spark, what the writer's number means is said by the reader's schema.
    at = datetime(1970, 1, 1, 0, 0, 0, 7, UTC)
    assert found == {"n": 5.0, "at": at, "new": "x", "data": b"y"}


def test_why_a_value_has_no_schema_is_said_of_each(registry: FakeRegistry) -> None:
    sent = with_header(9, ORDER), ORDER, b"", b"\0\0\0\0\1", with_header(1, b"\x09"), None
    unknown, *others = reasons(read_by(registry), *sent)
    assert unknown is not None
    assert unknown.startswith("the value has the schema with id 9: the registry at")
    no_name = "the value does not name a schema"
    assert others == [no_name, no_name, no_name, MISFIT, None]


def test_the_users_ids_are_those_of_the_schema() -> None:
    assert reasons(avro(AVRO, schema_ids=(42, 41)), with_header(43, WITH_AGE)) == [
        "the value has the schema with id 43: --value-schema is that of 41, 42 (--schema-id)"
    ]


def test_a_registry_that_does_not_answer_ends_the_export(registry: FakeRegistry) -> None:
    registry.instead = lambda handler: send(handler, 500, b'{"error_code": 50001}')
    with pytest.raises(TableRefused, match="the value has the schema with id 1: the registry at"):
        rows(read_by(registry), with_header(1, ORDER))


def test_a_registered_schema_may_refer_to_others(registry: FakeRegistry) -> None:
    note = {"type": "fixed", "name": "x.Note", "size": 2}
    registry.add(json.dumps(note), subject="note")
    both = record_of("Order", note="x.Note")
    number = registry.add(json.dumps(both), refers_to=[Referred("x.Note", "note")])
    payload = read_by(registry, record_of("Order", note=note))
    assert rows(payload, with_header(number, b"hi")) == [{"note": b"hi"}]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (["int", "string"], "a union of several types beside null is no column"),
        (["null", "int", "float"], "a union of several types"),
        (["null"], "a union of several types"),
        ("null", "no column has the type null"),
        (["null", "R"], "the record R has itself inside"),
        (record_of("Empty"), "the record Empty has no fields"),
        ({"type": "long", "logicalType": "time-micros"}, "no column has the type time-micros"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39},
            r"DECIMAL\(39, 0\) is no type",
        ),
        ("Nothing", "Nothing"),
    ],
)
def test_a_type_that_no_column_has_is_refused(kind: Any, sentence: str) -> None:
    with pytest.raises(TableRefused, match=f"--value-schema .*{sentence}"):
        RowReader(avro(record_of("R", a=kind)))


def test_names_of_columns_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(TableRefused, match="two columns would be named"):
        RowReader(avro(record_of("R", a="int", A="int")))
    assert replace(avro(AVRO), key_column="k").key_column == "k"
